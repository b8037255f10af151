#include "agent/relay/compressor.h"

#include <cstdlib>

#include "agent/relay/limits.h"

namespace traincheck::agent {

// The server takes every batch, also one that is full and does not compress.
static_assert(ZSTD_COMPRESSBOUND(kMaxBatchPlainBytes) <= kMaxPayloadBytes);

Compressor::Compressor() : context_(ZSTD_createCCtx()) {
  // A relay without memory for its one context cannot do anything. It dies, and
  // the agent starts another one.
  if (context_ == nullptr) std::abort();
  ZSTD_CCtx_setParameter(context_, ZSTD_c_compressionLevel, kCompressionLevel);
  ZSTD_CCtx_setParameter(context_, ZSTD_c_checksumFlag, 1);
}

Compressor::~Compressor() { ZSTD_freeCCtx(context_); }

std::string Compressor::Compress(const std::string& plain) {
  std::string packed(ZSTD_compressBound(plain.size()), '\0');
  const size_t size = ZSTD_compress2(context_, packed.data(), packed.size(),
                                     plain.data(), plain.size());
  // The output always fits, so this is a failed allocation.
  if (ZSTD_isError(size)) std::abort();
  packed.resize(size);
  return packed;
}

}  // namespace traincheck::agent
