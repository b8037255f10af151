// RateSchedule: an optimizer's learning rates take the course that they took in
// the reference runs.
//
//   {"optimizer": "torch.optim.adam.Adam", "ordinal": 0, "steps": 100,
//    "rates": [[[0, 0.01], [30, 0.001]]]}
//
// A window is one outermost step of the optimizer, the n-th that it makes
// (n = 0, 1, ... below "steps"; rate_course.h says which n are looked at). The
// rate of each parameter group when it begins is that of "rates". An optimizer
// that begins with other rates of its first group was given other settings, and
// one with another number of groups is another one: neither is judged. Nor are
// steps behind one that a GradScaler left out: other runs leave out others.
//
// Unknown where the rate was not recorded, and where the optimizer's first step
// is among missing records. Learned for an experiment, as advice, unless the
// course depends on the training (ReduceLROnPlateau). Needs nothing: rates are
// of the skeleton.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_SCHEDULE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_SCHEDULE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* RateSchedule();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_RATE_SCHEDULE_RATE_SCHEDULE_H_
