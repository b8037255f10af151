// Which hypotheses become rules, and where they apply.
//
// A hypothesis that was violated gets the condition that separates the windows
// in which it held, or is dropped. A rule is *general* if it names nothing of a
// single program, was decided and never violated in programs of several kinds,
// and each of these would have passed by what the others teach (leave one
// program out); else it holds for the experiments that it was learned from.
// It is shipped if the data could have refuted it (ChanceOf), if a shipped rule
// guards the facts of its condition, and if no shipped rule implies it.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INFERENCE_SELECTION_H_
#define TRAINCHECK_INFERENCE_SELECTION_H_

#include "inference/candidate.h"
#include "inference/options.h"
#include "inference/program_kinds.h"

namespace traincheck {

// After the first look at the runs: drops what was not decided, gives what was
// violated a precondition; its score begins anew.
void Weigh(Candidate* candidate);
// After the second, under the precondition.
void WeighAgain(Candidate* candidate);
// Is what remains enough, and for whom?
void Settle(const InferenceOptions& options, const ProgramKinds& kinds,
            Candidate* candidate);
// Drops rules whose condition reads facts that no shipped rule guards: they
// would be silent exactly when they are needed.
void DropUnguarded(Candidates* candidates);
// Drops what shipped rules imply.
void Suppress(Candidates* candidates);
// Drops the least of them until so many are in, and what these guarded.
void KeepBest(uint32_t most, Candidates* candidates);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_SELECTION_H_
