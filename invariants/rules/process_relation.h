// A relation, or a form of one, whose rules are judged within one process: what
// it needs is the specification of a rule (spec_relation.h) and the part that
// judges, a ProcessObserver made of a const JudgedRules<SpecRule<Spec>>*.
//
// Threads: as relation.h.
#ifndef TRAINCHECK_INVARIANTS_RULES_PROCESS_RELATION_H_
#define TRAINCHECK_INVARIANTS_RULES_PROCESS_RELATION_H_

#include "invariants/rules/per_process.h"
#include "invariants/rules/spec_relation.h"

namespace traincheck {

template <typename Spec, typename Part>
using ProcessRelation = SpecRelation<Spec, PerProcess<SpecRule<Spec>, Part>>;

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_PROCESS_RELATION_H_
