// EventContain, windows of one call: the call contains a call, or (a backward)
// a gradient that changes. Judged when the call ends; a call that raises is
// left aside.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_

#include <memory>

#include "invariants/relations/event_contain/contain_rules.h"

namespace traincheck {

// The part of one process. `rules` (of call windows only) and `sink` must
// outlive it.
std::unique_ptr<ProcessObserver> NewContainCalls(const ContainRules* rules,
                                                 RuleSink* sink);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_CALLS_H_
