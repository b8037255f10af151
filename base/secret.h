// Secrets that are drawn at random, kept as hashes and compared so that the
// time it takes says nothing.
//
// Threads: pure functions.
#ifndef TRAINCHECK_BASE_SECRET_H_
#define TRAINCHECK_BASE_SECRET_H_

#include <cstddef>
#include <string>
#include <string_view>

namespace traincheck {

// `bytes` random bytes as lower-case hex digits. Ends the process if the system
// has no random numbers: no secret may be guessable.
std::string RandomHex(size_t bytes);

// 32 bytes.
std::string Sha256(std::string_view text);

bool EqualInConstantTime(std::string_view a, std::string_view b);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SECRET_H_
