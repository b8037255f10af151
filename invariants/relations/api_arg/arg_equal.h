// APIArg, form *equal*: an argument of a function is the same on all ranks that
// train replicas of a model.
//
//   {"is": "equal", "function": FUNCTION, "argument": "max_norm",
//    "across": "ranks"}
//
// See calls_across_ranks.h. Numbers, bools, None, texts that the plan asks for.
// Needs calls of the function and this argument.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_EQUAL_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_EQUAL_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgEqual();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_EQUAL_H_
