// Seeds of tests that draw. They are fixed: a run of the suite does not fail by
// chance. TRAINCHECK_SEED takes another one, TRAINCHECK_SEEDS says how many are
// tried one after the other; tools/long_tests.sh sets both.
#ifndef TRAINCHECK_BASE_SEED_FOR_TESTING_H_
#define TRAINCHECK_BASE_SEED_FOR_TESTING_H_

#include <cstdint>
#include <cstdlib>

namespace traincheck {

// The environment's, else `fixed`.
inline uint64_t SeedForTesting(uint64_t fixed) {
  const char* const value = std::getenv("TRAINCHECK_SEED");
  return value ? std::strtoull(value, nullptr, 10) : fixed;
}

// The environment's, else `count`.
inline uint64_t SeedsForTesting(uint64_t count) {
  const char* const value = std::getenv("TRAINCHECK_SEEDS");
  return value ? std::strtoull(value, nullptr, 10) : count;
}

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_SEED_FOR_TESTING_H_
