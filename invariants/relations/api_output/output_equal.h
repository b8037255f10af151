// APIOutput, form *equal*: a property of a function's result equals another
// fact.
//
//   {"is": "equal", "function": FUNCTION, "output": "dtype",
//    "to": {"context": "autocast_dtype"}}
//   {"is": "equal", "function": FUNCTION, "output": "size(0)",
//    "to": {"argument": "input"}}
//
// The first: within torch.autocast the result has the type to which it casts.
// The second: the result has as many rows as this argument has rows, or
// elements where it is a list (no sample of a batch is lost or invented).
// FUNCTION by name or role. A window is one call that returns a tensor; for the
// first, inside an enabled region of the tensor's device; for the second, of
// which argument and result have rows.
//
// Unknown where a call does not tell its result or the argument. Needs calls
// of the function with their results.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_EQUAL_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_EQUAL_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* OutputEqual();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_OUTPUT_EQUAL_H_
