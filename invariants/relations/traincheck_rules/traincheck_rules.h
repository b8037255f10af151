// The relation TrainCheck: rules of TrainCheck's own files, kept as they are
// (docs/traincheck-files.md). Parameters: rule_form.h.
//
// Those that mean the same as a rule of EventContain (translation.h) are judged
// by that one's evaluator. All others are unknown, with the reason, and never a
// pass. None is learned.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRAINCHECK_RULES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRAINCHECK_RULES_H_

#include <memory>

#include "invariants/rules/relation.h"

namespace traincheck {

// `event_contain` must outlive it.
std::unique_ptr<Relation> NewTrainCheckRules(const Relation* event_contain);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRAINCHECK_RULES_H_
