// StateChange: how often a variable changes.
//
//   {"of": "parameter.data", "variable": "Net.fc.weight", "changes": "every",
//    "steps": 1}
//   {"of": "buffer.data", "variable": "Net.mask", "changes": "never"}
//   {"of": "parameter.data", "role": "frozen", "changes": "never"}
//   {"of": "buffer.data",
//    "role": "torch.nn.modules.batchnorm.BatchNorm2d.running_mean",
//    "changes": "every", "steps": 1, "after": "first_forward"}
//
// Content at step_end, from one step of the process to the next. A role speaks
// of every variable that has it: what all modules of a class have under one
// name, or frozen parameters, which require no gradient, are held by no
// optimizer and are no copies of others, which follow what they copy. Every so
// many steps: it changes in each of them and in no other, counted from the
// first change that was seen. A parameter whose learning rate is 0 is not asked
// to change; nor is, after the first forward, a buffer before any training
// forward has written such a one (a BatchNorm that is always in evaluation).
// Only the steps from the second on are judged: the first makes the model.
//
// Unknown where the variable was not recorded, or records are missing. Needs
// this state at step_end.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STATE_CHANGE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STATE_CHANGE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* StateChange();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STATE_CHANGE_H_
