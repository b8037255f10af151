// APIArg, form *distinct across workers*: the workers of one pass over a loader
// begin with different states of a random generator.
//
//   {"is": "distinct", "argument": "generator.numpy", "across": "workers"}
//
// The generators as they are after worker_init_fn, before the first fetch: what
// draws from equal ones repeats itself. One that the data set keeps for itself
// ("generator.dataset") is recorded once it has been drawn from, as it was at
// the beginning. Workers that a process started for one
// pass are told apart by the seed that torch gives each pass. A window is one
// worker, against those with smaller numbers; it is judged when these are in,
// whatever came first, at the step in which the loader's process started them.
//
// Unknown where a worker did not record its generator. Needs nothing: these
// states are always recorded.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_WORKERS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_WORKERS_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgWorkers();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_WORKERS_H_
