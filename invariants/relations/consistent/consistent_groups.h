// Consistent across the ranks of a process group, as a healthy run showed it
// and no wrapper says it: what tensor, sequence or expert parallelism keeps
// equal.
//
//   {"across": "ranks", "of": "parameter.data", "point": "post_step",
//    "group": {"ranks": 2, "apart": 1}, "role": "CLASS.NAME"}
//
// or `variable`, a full name, instead of `role`; rank_groups.h has the kinds of
// groups. `point` is "pre_step" or "post_step". Windows: one a group, optimizer
// and count of its steps. Not about variables of which a wrapper says that
// these ranks hold replicas: consistent_ranks.h is.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_GROUPS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_GROUPS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentGroups();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_GROUPS_H_
