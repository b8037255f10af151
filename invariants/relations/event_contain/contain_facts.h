// EventContain, steps with a fact: at each step of an optimizer a fact of every
// parameter that it holds, or of every buffer of the models that it trains, has
// a value. Judged when the step ends. A parameter or buffer is one trial a run.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_FACTS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_FACTS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainFacts();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_FACTS_H_
