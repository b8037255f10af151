// ReproducedSteps: a run that begins like a reference run goes on like it.
//
//   {"start": {"host": "node-3", "rank": "0 of 1", "generators": {NAME: HEX}},
//    "steps": [[SETTINGS, ROWS, WEIGHTS, GRADIENTS], ...]}
//
// A window is an outermost optimizer step of the process, the n-th that it
// makes. A run begins alike if it is the same rank on the same host, and if
// random generators that are used, at the first training forward, the
// optimizer's settings, the rows read so far and the weights are equal, all by
// their digests (step_digests.h). Then everything that follows is determined:
// rows, weights and gradients of the n-th step are those of "steps". The first
// step that differs is a violation, and nothing after it is judged. Runs that
// begin otherwise (another seed, other data, another machine) have no occasion,
// and nothing is judged from a step on whose settings are others.
//
// Unknown where some weight, gradient or generator was not recorded. Learned
// for an experiment, as advice: whoever changes what is computed on purpose
// breaks it, too. Needs weights and gradients at the steps.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_REPRODUCED_STEPS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_REPRODUCED_STEPS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ReproducedSteps();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_REPRODUCED_STEPS_REPRODUCED_STEPS_H_
