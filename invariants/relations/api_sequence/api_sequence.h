// APISequence: functions are first called in one order.
//
//   {"window": "step", "functions": [FUNCTION, FUNCTION, ...]}
//   {"window": "run", "functions": [FUNCTION, FUNCTION, ...]}
//
// In each window in which two or more of them are called on one thread, the
// first calls of those come in the order of the list. That they are called at
// all is for EventContain to say. A window is a step of the process, but the
// first, which holds the set-up, or the whole run. An order is broken by the
// call that comes too late, and told then.
//
// Unknown where records before such a call are missing, were not sampled, or
// the plan does not name the functions. Needs calls of all of them.
//
// A fixed loop does everything in one order, whatever it means. What counts as
// evidence is therefore how many different things happened in between: a rule
// is shipped where these varied.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_API_SEQUENCE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_API_SEQUENCE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ApiSequence();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_API_SEQUENCE_H_
