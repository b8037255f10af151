// SavedEqualsLive, "resumed": an optimizer's state that was read reaches an
// optimizer.
//
//   {"what": "resumed"}
//
// A window is the first step of an optimizer after torch.load gave states of
// optimizers (tensors under P.state, beside P.param_groups), if since its step
// before its model took a state (load_state_dict). The optimizer, or one that
// holds the same parameters, has then taken a state as well.
//
// Who reads a checkpoint for its weights alone (fine-tuning) reads the
// optimizer's state too and rightly leaves it. So only a file tells that was
// read to go on with the training: one that holds no weights, or one of which
// another optimizer took its state. Of others nothing is said.
//
// Unknown where records are missing since the file was read, where it holds
// more than is recorded, and where what other optimizers took was not recorded
// because the step was not sampled. Needs nothing that a plan could leave out.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_RESUMED_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_RESUMED_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedResumed();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_RESUMED_H_
