#include "agent/torch/digest.h"

#include <cstring>

namespace traincheck {
namespace {

constexpr uint64_t kG = 0x9e3779b97f4a7c15;   // 2^64 / golden ratio, odd
constexpr uint64_t kC1 = 0xd6e8feb86659fd93;  // odd
constexpr uint64_t kC2 = 0xc2b2ae3d27d4eb4f;  // odd

inline uint64_t Mix(uint64_t x) {
  x ^= x >> 32;
  x *= kC1;
  x ^= x >> 32;
  x *= kC2;
  return x ^ (x >> 32);
}

// The compiler vectorises this loop for each target; the choice is made once,
// when the library is loaded.
__attribute__((target_clones("arch=x86-64-v4", "arch=x86-64-v3", "default"),
               optimize("O3"))) DigestSum
SumWholeWords(const char* data, size_t words, uint64_t first_word) {
  uint64_t sum = 0;
  uint64_t any_bits = 0;
  for (size_t i = 0; i < words; ++i) {
    uint64_t word;
    std::memcpy(&word, data + 8 * i, sizeof word);
    any_bits |= word;
    sum += Mix(word ^ (first_word + i + 1) * kG);
  }
  return {sum, any_bits};
}

uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

}  // namespace

DigestSum SumWords(const void* data, size_t bytes, uint64_t first_word) {
  const char* from = static_cast<const char*>(data);
  const size_t words = bytes / 8;
  DigestSum sum = SumWholeWords(from, words, first_word);
  if (bytes % 8 != 0) {
    char last[8] = {};
    std::memcpy(last, from + 8 * words, bytes % 8);
    sum += SumWholeWords(last, 1, first_word + words);
  }
  return sum;
}

uint64_t FinishDigest(uint64_t sum, uint64_t bytes, std::string_view dtype) {
  return Mix(sum ^ Mix(bytes ^ Fnv1a(dtype) * kG));
}

}  // namespace traincheck
