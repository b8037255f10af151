// Consistent across ranks, of learning rates: those of the parameter groups
// that hold replicas, when their optimizer's step begins.
//
//   {"across": "ranks", "of": "optimizer.lr", "point": "pre_step"}
//
// Ranks and windows as in consistent_ranks.h. Needs nothing: rates are always
// recorded.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RATES_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentRates();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_RATES_H_
