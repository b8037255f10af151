// EventContain with state of the parameters that an optimizer holds: its step
// changes some (every) of them; at its step some of their gradients are not
// zero, some of them require one, or none of them was replaced. Judged when the
// step ends.
//
// A rule asks for what could be otherwise. That some parameter changes: where
// one with a learning rate that is not 0 has a gradient that is neither zero
// nor NaN or infinite. That some gradient is not zero: where a backward ran
// since the last step, or in the third step in a row without one; who steps
// after a batch that was skipped does no harm. For "every", a parameter whose
// own rate is 0 is left aside.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainUpdates();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_
