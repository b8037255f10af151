#include "proto/content_digest.h"

#include <array>
#include <cstddef>
#include <string_view>

namespace traincheck {
namespace {

// The largest number of an element type in the table of torch_types.cc, and
// room.
constexpr size_t kDtypes = 64;

constexpr uint64_t Fnv1a(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (const char byte : text) {
    hash = (hash ^ static_cast<uint8_t>(byte)) * 0x100000001b3;
  }
  return hash;
}

// Computed once: a digest is finished for each tensor at each state point.
std::array<uint64_t, kDtypes> MakeDtypeHashes() {
  std::array<uint64_t, kDtypes> hashes;
  for (size_t i = 0; i < kDtypes; ++i) {
    hashes[i] = Fnv1a(DtypeName(static_cast<Dtype>(i))) * kDigestG;
  }
  return hashes;
}

}  // namespace

uint64_t FinishDigest(uint64_t sum, uint64_t bytes, Dtype dtype) {
  static const std::array<uint64_t, kDtypes> hashes = MakeDtypeHashes();
  // Numbers without a name, kUnknown too, lie behind the table's end: all have
  // the hash of the empty name.
  const uint64_t hash = hashes[static_cast<size_t>(dtype) % kDtypes];
  return MixWord(sum ^ MixWord(bytes ^ hash));
}

// For rows: a gradient's row of zeros is recognised by its digest, without its
// content.
uint64_t DigestOfZeros(uint64_t bytes, Dtype dtype) {
  uint64_t sum = 0;
  for (uint64_t word = 0; word < (bytes + 7) / 8; ++word) {
    // A zero word leaves nothing of itself but its position.
    sum += MixWord((word + 1) * kDigestG);
  }
  return FinishDigest(sum, bytes, dtype);
}

}  // namespace traincheck
