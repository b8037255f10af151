// The relation Consistent: equal values at a state point while values change,
// across the ranks of a replica group or between two variables of a rank.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* Consistent();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_H_
