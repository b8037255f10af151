// EventContain, windows of one call: the call contains a call, or (a backward)
// a gradient that changes. Judged when the call ends; a call that raises is
// left aside.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainCalls();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_
