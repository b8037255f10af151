// The saved state of a check, in and out of its envelope.
#ifndef TRAINCHECK_TESTS_FUZZ_CHECKER_STATE_H_
#define TRAINCHECK_TESTS_FUZZ_CHECKER_STATE_H_

#include <memory>
#include <string>

#include "checker/checker.h"

namespace traincheck {

// Of the one check that the targets know, with SmallSet.
std::unique_ptr<Checker> NewSmallChecker();

// What the envelope of its saved state holds.
std::string StateOf(const Checker& checker);
// A whole envelope around any bytes, because no fuzzer finds a hash.
std::string Sealed(const std::string& state);

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_CHECKER_STATE_H_
