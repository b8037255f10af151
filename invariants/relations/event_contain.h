// The relation EventContain: during a window an event happens. The window is
// a call, or a span between two steps of an optimizer; the event is a call or
// a change of state. contain_spec.h has the parameters; contain_calls,
// contain_spans and contain_updates judge one kind of window each.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_H_

#include "invariants/relations/relation.h"

namespace traincheck {

const Relation* EventContain();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_H_
