// Consistent across ranks: the members of a replica group hold equal values
// of a kind of state at a state point.
//
//   {"across": "ranks", "of": "parameter.grad", "point": "pre_step"}
//
// Windows: one a group, optimizer (or wrapper) and count of its steps (or
// training forwards). Nothing is compared without evidence of replication
// (ReplicaGroupDef); an unreadable tensor is unknown.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RANKS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RANKS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentRanks();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RANKS_H_
