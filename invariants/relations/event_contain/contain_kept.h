// EventContain, spans in which data is kept: what an optimizer holds is, when
// its step begins, as its last step left it. Judged when the step ends, from
// the second on.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainKept();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_
