// Stable 64-bit hashes: the same on every machine and in every version, so
// they may be stored.
//
// Threads: pure functions.
#ifndef TRAINCHECK_BASE_HASH_H_
#define TRAINCHECK_BASE_HASH_H_

#include <cstdint>
#include <string>

namespace traincheck {

uint64_t StableHash(const std::string& bytes);
// 16 hex digits.
std::string HashText(const std::string& bytes);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_HASH_H_
