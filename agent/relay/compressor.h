// Compresses payloads as the store keeps them: one zstd frame each, with a
// checksum over the content.
//
// Owned by the relay. Threads: one object, one thread.
#ifndef TRAINCHECK_AGENT_RELAY_COMPRESSOR_H_
#define TRAINCHECK_AGENT_RELAY_COMPRESSOR_H_

#include <zstd.h>

#include <string>

namespace traincheck::agent {

class Compressor {
 public:
  Compressor();
  ~Compressor();
  Compressor(const Compressor&) = delete;
  Compressor& operator=(const Compressor&) = delete;

  // REQUIRES: plain.size() <= kMaxBatchPlainBytes. Ends the process where
  // memory is out.
  std::string Compress(const std::string& plain);

 private:
  ZSTD_CCtx* const context_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_COMPRESSOR_H_
