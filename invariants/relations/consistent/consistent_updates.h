// Consistent across ranks, without a wrapper: what is equal on all ranks and
// gets equal gradients is updated alike.
//
//   {"across": "ranks", "of": "parameter.data", "point": "post_step",
//    "given": "equal gradients"}
//
// Windows: one an optimizer and count of its steps, of all ranks of the
// attempt, where one process group is of all of them. A parameter is judged
// where all ranks show, under its name and shape, equal data and an equal
// learning rate when the step begins, and, when the last backward before it
// ended, a gradient that was there, not zero, and equal: that is the evidence
// of replication. Those with a wrapper's evidence are consistent_ranks.h's.
//
// No verdict on a window without evidence; unknown where records of it are
// missing, and one before it had some.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_UPDATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_UPDATES_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentUpdates();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_UPDATES_H_
