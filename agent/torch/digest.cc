#include "agent/torch/digest.h"

#include <cstring>

namespace traincheck::agent {

DigestSum SumWords(const void* data, size_t bytes, uint64_t first_word) {
  const char* from = static_cast<const char*>(data);
  const size_t words = bytes / 8;
  // Whole words go to the vector loop, and the rest is one padded word.
  DigestSum sum = SumWholeWords(from, words, first_word);
  // The length goes into the digest as well, so that padding is not taken for
  // zeros of the tensor.
  if (bytes % 8 != 0) {
    char last[8] = {};
    std::memcpy(last, from + 8 * words, bytes % 8);
    sum += SumWholeWords(last, 1, first_word + words);
  }
  return sum;
}

}  // namespace traincheck::agent
