// EventContain, clearing calls: after zero_grad of an optimizer the gradients
// of all that it holds are None or zero. Judged when the call ends; one of a
// module is left aside, and so is one of an optimizer whose parameters have
// never had a gradient.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CLEARED_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CLEARED_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainCleared();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CLEARED_H_
