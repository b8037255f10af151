// CallCount: how often a function is called in a window.
//
//   {"function": FUNCTION, "counts": [1], "per": "step"}
//   {"function": FUNCTION, "counts": [0, 1], "per": "epoch"}
//   {"function": FUNCTION, "counts": [3], "per": {"call": FUNCTION}}
//
// One of at most three counts. A window is a step of the process, a pass over
// its training data, or one call of another function, at any depth on its
// thread. The first step holds the set-up, and the first and last pass what
// comes before and after training: they are not judged.
//
// Unknown where records of the window are missing, it was not sampled, or the
// plan does not name the function. Needs calls of both functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_CALL_COUNT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_CALL_COUNT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* CallCount();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_CALL_COUNT_H_
