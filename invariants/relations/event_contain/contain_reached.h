// EventContain with gradients of the first steps: every trainable parameter
// that an optimizer holds, and whose module is called to train, has a gradient
// at one of its first steps that a backward came before. Judged once, at the
// last of them.
//
// A gradient that is zero is there: who begins with zeros (adapters) has
// such ones. What no call uses (a head for another task) is left aside.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_REACHED_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_REACHED_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainReached();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_REACHED_H_
