// CollectiveContract: the members of a process group call the same collectives
// in the same order, with what these need to agree on.
//
//   {"what": "operation"}   the same function
//   {"what": "tensors"}     tensors of equal type and shape, where it asks for
//                           them (all_reduce, broadcast, all_to_all_single
//                           without splits, ...)
//   {"what": "root"}        the same source or destination
//   {"what": "splits"}      in all_to_all_single and all_to_all each sends the
//                           part that the other expects, judged by pairs among
//                           the first eight members, and once for the group
//                           what concerns others: known where parts are equal
//
// A window is one collective of one group, by its number among those of the
// group on each member. It is judged as soon as two members have begun it: one
// that does not fit may never end. What another member has not begun yet is
// waited for.
//
// Unknown where a member's records are missing, or its calls do not tell the
// argument. Needs calls of collectives; for all but the operation their
// arguments.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_CONTRACT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_CONTRACT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* CollectiveContract();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_COLLECTIVE_CONTRACT_COLLECTIVE_CONTRACT_H_
