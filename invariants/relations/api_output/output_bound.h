// APIOutput, form *at_most*: a result is longer than an input by no more than
// an argument says.
//
//   {"is": "at_most", "function": FUNCTION, "dimension": 1,
//    "over": "input_ids", "bound": "max_new_tokens"}
//
// size(dimension) of the result less that of the tensor `over` is at most the
// number `bound`. A window is one call that returns a tensor with this
// dimension and is given both: None is not a bound. It is learned where the
// bound was reached and never passed.
//
// Unknown where a call does not tell its result or one of the two. Needs calls
// of the function with their results and these arguments.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_BOUND_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_BOUND_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* OutputBound();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_BOUND_H_
