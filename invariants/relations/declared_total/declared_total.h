// DeclaredTotal: as many optimizer steps were made as a call has announced.
//
//   {"function": FUNCTION, "argument": "total_iters"}
//
// "CosineAnnealingLR is told T_max = 100, and 100 steps are made." The window
// is the run of one process; the last call before its clean end counts, and the
// steps of the optimizer that made most. Steps that a scaler skips count in
// some programs and not in others (a schedule that steps on, or not): both
// totals pass, and one between them is unknown. It is learned where the number
// was the same as that of the steps, and runs that announced different numbers
// show it.
//
// Unknown where the process did not end in order, records are missing, or the
// call does not tell the argument. Needs calls of the function and this
// argument.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_DECLARED_TOTAL_DECLARED_TOTAL_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_DECLARED_TOTAL_DECLARED_TOTAL_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* DeclaredTotal();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_DECLARED_TOTAL_DECLARED_TOTAL_H_
