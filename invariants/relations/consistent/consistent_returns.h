// Consistent across ranks, of what calls return: the norm that clipping gives.
//
//   {"across": "ranks", "of": "return", "function": FUNCTION}
//
// See calls_across_ranks.h. Needs calls of the function with their results and
// the digests of these.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RETURNS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RETURNS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentReturns();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RETURNS_H_
