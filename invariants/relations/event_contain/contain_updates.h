// EventContain with state of the parameters that an optimizer holds: its step
// changes some (every) of them; at its step some of their gradients are not
// zero, or some of them require one. Judged when the step ends.
//
// None is conditioned on gradients: an optimizer that holds the wrong
// parameters gets none. A step whose learning rates are all 0 (warm-up) is
// left aside; so is, for "every", a parameter whose own rate is 0.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainUpdates();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_UPDATES_H_
