// EventContain, spans in which data is kept: what an optimizer holds is, when
// its step begins, as its last step left it. Judged when the step ends, from
// the second on.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_

#include <memory>

#include "invariants/relations/event_contain/contain_rules.h"

namespace traincheck {

// The part of one process. `rules` and `sink` must outlive it.
std::unique_ptr<ProcessObserver> NewContainKept(const ContainRules* rules,
                                                RuleSink* sink);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_KEPT_H_
