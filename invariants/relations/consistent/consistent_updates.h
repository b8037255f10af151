// Consistent across ranks, without a wrapper: what is equal on all ranks and
// gets equal gradients is updated alike.
//
//   {"across": "ranks", "of": "parameter.data", "point": "post_step",
//    "given": "equal gradients"}
//
// Windows: one a process group (rank_groups.h), optimizer and count of its
// steps. A parameter is judged where all ranks of the group show, under its
// name and shape, equal data and an equal learning rate when the step begins,
// and, when the last backward before it ended, a gradient that was there, not
// zero, and equal: that is the evidence of replication. Those of which a
// wrapper says that these ranks hold replicas are consistent_ranks.h's.
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
