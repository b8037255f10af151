// Consistent within a rank: two parameters hold equal data whenever an
// optimizer step ends, while they change (weights tied by copying).
//
//   {"across": "variables", "of": "parameter.data", "point": "post_step",
//    "a": "Net.encoder.weight", "b": "Net.decoder.weight"}
//
// `of` is "parameter.data" where both are parameters, "data" where one is what
// the optimizer keeps of some ("Net.fc.weight/master"). No buffers: counters
// such as num_batches_tracked are equal without meaning anything. Windows: one
// a step of the optimizer that holds both.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_VARIABLES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_VARIABLES_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ConsistentVariables();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_CONSISTENT_VARIABLES_H_
