// OptimizerProgress: gradients are used, and not computed without end.
//
//   {"backwards": 16}
//
// "After at most 16 backwards some optimizer steps." A window is the stretch
// between two steps of the optimizers of one process; a step that a GradScaler
// skips was tried, and counts. Of the backwards the outermost count that gave
// some parameter a gradient, outside of steps (closures). The stretch before
// the first step, and the one that the process ends in, are not judged.
//
// Unknown where records are missing in the stretch, and where so many backwards
// ran that it depends on some of which no gradients were recorded. What comes
// after missing records counts anew: too many without a step are too many
// whatever was before. Needs gradients; the calls are of the skeleton.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_OPTIMIZER_PROGRESS_OPTIMIZER_PROGRESS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_OPTIMIZER_PROGRESS_OPTIMIZER_PROGRESS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* OptimizerProgress();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_OPTIMIZER_PROGRESS_OPTIMIZER_PROGRESS_H_
