#include "agent/torch/digest.h"

#include <array>
#include <cstring>

namespace traincheck {
namespace {

// The largest number of an element type in the table of dtype.cc, and room.
constexpr size_t kDtypes = 64;

constexpr uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

std::array<uint64_t, kDtypes> MakeDtypeHashes() {
  std::array<uint64_t, kDtypes> hashes;
  for (size_t i = 0; i < kDtypes; ++i) {
    hashes[i] = Fnv1a(DtypeName(static_cast<Dtype>(i))) * kDigestG;
  }
  return hashes;
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

uint64_t FinishDigest(uint64_t sum, uint64_t bytes, Dtype dtype) {
  static const std::array<uint64_t, kDtypes> hashes = MakeDtypeHashes();
  const uint64_t hash = hashes[static_cast<size_t>(dtype) % kDtypes];
  return MixWord(sum ^ MixWord(bytes ^ hash));
}

}  // namespace traincheck
