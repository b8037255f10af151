// APIArg, form *fact*: whenever a function is called, a fact has this value.
//
//   {"is": "fact", "function": FUNCTION, "fact": "grad.scaled",
//    "value": false}
//
// "Whenever an optimizer steps, its gradients are not multiplied by a scale any
// more." The fact is one of the call, of the optimizer that is stepped, or of
// the loader that is read (docs/facts.md); it is read when the call begins, or
// when it ends where it is known only then. A window is a call for which the
// fact means something. The first one of a step is a trial.
//
// Unknown where the fact is. Needs the calls and what the fact needs.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_FACT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_FACT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgFact();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_FACT_H_
