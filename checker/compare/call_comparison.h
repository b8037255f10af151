// Compares the calls of a step: which are made, how, and what they tell. Calls
// are aligned by function, module and ordinal, so that one that is missing does
// not make others different.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_COMPARE_CALL_COMPARISON_H_
#define TRAINCHECK_CHECKER_COMPARE_CALL_COMPARISON_H_

#include "checker/compare/step_pair.h"

namespace traincheck {

void CompareCalls(const StepPair& pair);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_CALL_COMPARISON_H_
