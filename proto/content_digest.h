// The digest of a tensor's content: its definition, for those who compute it
// and those who must recognise one. docs/digest.md.
//
// Threads: pure functions.
#ifndef TRAINCHECK_PROTO_CONTENT_DIGEST_H_
#define TRAINCHECK_PROTO_CONTENT_DIGEST_H_

#include <cstdint>

#include "proto/torch_types.h"

namespace traincheck {

constexpr uint64_t kDigestG = 0x9e3779b97f4a7c15;   // 2^64 / golden ratio, odd
constexpr uint64_t kDigestC1 = 0xd6e8feb86659fd93;  // odd
constexpr uint64_t kDigestC2 = 0xc2b2ae3d27d4eb4f;  // odd

constexpr uint64_t MixWord(uint64_t x) {
  x ^= x >> 32;
  x *= kDigestC1;
  x ^= x >> 32;
  x *= kDigestC2;
  return x ^ (x >> 32);
}

// From the sum over the words of a content of so many bytes. Equal content of
// another type or length has another digest.
uint64_t FinishDigest(uint64_t sum, uint64_t bytes, Dtype dtype);

// Of so many bytes that are all zero. Takes a time in proportion to them.
uint64_t DigestOfZeros(uint64_t bytes, Dtype dtype);

}  // namespace traincheck

#endif  // TRAINCHECK_PROTO_CONTENT_DIGEST_H_
