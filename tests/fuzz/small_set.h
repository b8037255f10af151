// A set with one rule of each shape, learned from synthetic trainings.
#ifndef TRAINCHECK_TESTS_FUZZ_SMALL_SET_H_
#define TRAINCHECK_TESTS_FUZZ_SMALL_SET_H_

#include "invariants/rules/invariant.h"

namespace traincheck {

// Small, so that a fuzzer's input takes no longer than it must. Made at the
// first call. Applies to every experiment.
const InvariantSet& SmallSet();

}  // namespace traincheck

#endif  // TRAINCHECK_TESTS_FUZZ_SMALL_SET_H_
