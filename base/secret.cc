#include "base/secret.h"

#include <openssl/crypto.h>
#include <openssl/rand.h>
#include <openssl/sha.h>

#include <cstdlib>
#include <vector>

namespace traincheck {

std::string RandomHex(size_t bytes) {
  static constexpr char kDigits[] = "0123456789abcdef";
  std::vector<unsigned char> drawn(bytes);
  // Without random bytes no secret can be made, and a weak one must not be.
  if (RAND_bytes(drawn.data(), static_cast<int>(bytes)) != 1) std::abort();
  std::string hex;
  for (const unsigned char byte : drawn) {
    hex += kDigits[byte >> 4];
    hex += kDigits[byte & 15];
  }
  return hex;
}

std::string Sha256(std::string_view text) {
  std::string hash(SHA256_DIGEST_LENGTH, '\0');
  SHA256(reinterpret_cast<const unsigned char*>(text.data()), text.size(),
         reinterpret_cast<unsigned char*>(hash.data()));
  return hash;
}

// A comparison that stopped at the first difference would show by its time how
// much of a guessed token is right.
bool EqualInConstantTime(std::string_view a, std::string_view b) {
  // Everybody knows the sizes; only the bytes are secret.
  return a.size() == b.size() &&
         CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace traincheck
