#include "base/hash.h"

#include <xxhash.h>

#include <cstdio>

namespace traincheck {

uint64_t StableHash(const std::string& bytes) {
  // Stored values depend on function and seed, so that neither may ever change.
  return XXH64(bytes.data(), bytes.size(), /*seed=*/0);
}

// Sixteen digits for every hash, so that texts of hashes have one length.
std::string HashText(const std::string& bytes) {
  char text[17];
  std::snprintf(text, sizeof text, "%016llx",
                static_cast<unsigned long long>(StableHash(bytes)));
  return text;
}

}  // namespace traincheck
