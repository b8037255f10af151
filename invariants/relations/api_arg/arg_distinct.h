// APIArg, form *distinct*: in one call of a function, another one is given no
// tensor twice.
//
//   {"is": "distinct", "function": FUNCTION, "argument": "tensor",
//    "within": FUNCTION}
//
// "While a model's weights are initialised, normal_ is called on each of them
// once at most." Tensors are told apart by their memory. A window is one call
// of the function within, and is decided at its end, or by the second call that
// is given the same tensor.
//
// Unknown where a call does not tell the tensor, or records of the window are
// missing. Needs calls of both functions and this argument.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_DISTINCT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_DISTINCT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgDistinct();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_DISTINCT_H_
