// APIArg, form *constant*: an argument of a function has one value.
//
//   {"is": "constant", "function": FUNCTION, "argument": "dropout_p",
//    "value": 0.0}
//
// FUNCTION by name or role (function_match.h); value is a number, a bool, a
// text or null (None). A window is one call inside a call of a module, judged
// when it begins; outside, the stage is that of what ran last, and calls that
// switch it (train, eval) would be judged by the stage that they end. What an
// argument always is says nothing of a program's health: a rule is learned only
// where the argument had another value elsewhere, and holds under the
// precondition that tells the two apart
// ("dropout_p is 0 in evaluation").
//
// Unknown where a call does not tell the argument (its plan did not ask, or
// the record was full). Needs calls of the function and this argument.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_CONSTANT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_CONSTANT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgConstant();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_CONSTANT_H_
