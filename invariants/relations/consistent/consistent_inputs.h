// Consistent across ranks, the other way round: what the wrapper of replicas is
// given in its first two training forwards differs from rank to rank.
//
//   {"across": "ranks", "of": "inputs", "is": "distinct"}
//
// One window a wrapper, decided when every rank has told or has ended. Ranks
// that are together in a smaller process group may be given the same: they
// split a model. Unknown where nothing equal was seen, and a rank could not
// read its inputs or told nothing. Needs nothing: the agent tells them once.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_INPUTS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_INPUTS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentInputs();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_INPUTS_H_
