// The relation EventContain: during a window an event happens. The window is
// a call, or a span between two steps of an optimizer; the event is a call or
// a change of state. contain_spec.h has the parameters. Each of seven parts
// judges some of the rules: contain_calls and contain_spans calls (and whether
// gradients change) in the two kinds of window, contain_updates,
// contain_cleared, contain_kept, contain_reached and contain_facts states.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_EVENT_CONTAIN_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_EVENT_CONTAIN_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* EventContain();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_EVENT_CONTAIN_H_
