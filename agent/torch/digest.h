// The digest of a tensor: 64 bits over its whole content. docs/digest.md has
// the proofs, test vectors and measurements.
//
// The content is its elements in logical (row-major) order, cut into
// little-endian 64-bit words w_0, w_1, ...; the last is padded with zero bytes.
//
//   sum     = sum over i of mix(w_i ^ (i + 1) * G)          (mod 2^64)
//   mix(x)  : x ^= x >> 32; x *= C1; x ^= x >> 32; x *= C2; x ^= x >> 32
//   digest  = mix(sum ^ mix(bytes ^ fnv1a(name of dtype) * G))
//
// mix is a bijection, so any change within one word changes the sum for
// certain. The sum does not depend on the order in which words are visited:
// SIMD lanes, threads, GPU blocks and shards on 8-byte boundaries give the
// same value. For accidents, not for adversaries.
//
// Threads: pure functions.
#ifndef TRAINCHECK_AGENT_TORCH_DIGEST_H_
#define TRAINCHECK_AGENT_TORCH_DIGEST_H_

#include <cstddef>
#include <cstdint>

#include "agent/torch/word_sum.h"
#include "proto/content_digest.h"

namespace traincheck::agent {

// `bytes` bytes at `data` (any alignment), the first of which begins word
// `first_word` of the tensor.
DigestSum SumWords(const void* data, size_t bytes, uint64_t first_word = 0);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_DIGEST_H_
