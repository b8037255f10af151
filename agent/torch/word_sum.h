// The digest's inner loop, for the vectors that this processor has. What it
// computes stands in digest.h.
//
// Threads: pure functions.
#ifndef TRAINCHECK_AGENT_TORCH_WORD_SUM_H_
#define TRAINCHECK_AGENT_TORCH_WORD_SUM_H_

#include <cstddef>
#include <cstdint>

namespace traincheck::agent {

// Sum over some words, and all their bits together: 0 where every byte is zero
// (-0.0 has a bit set and is therefore not zero here). Parts of one tensor add
// up.
struct DigestSum {
  uint64_t sum = 0;
  uint64_t any_bits = 0;

  DigestSum& operator+=(const DigestSum& part) {
    sum += part.sum;
    any_bits |= part.any_bits;
    return *this;
  }
};

enum class VectorSet { kNone, kAvx2, kAvx512 };
// The best one here.
VectorSet BestVectorSet();

// `words` words at `data` (any alignment), the first of which is word
// `first_word` of the tensor.
DigestSum SumWholeWords(const char* data, size_t words, uint64_t first_word);
// REQUIRES: the processor has the vectors, so BestVectorSet() >= vectors.
DigestSum SumWholeWordsWith(VectorSet vectors, const char* data, size_t words,
                            uint64_t first_word);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_WORD_SUM_H_
