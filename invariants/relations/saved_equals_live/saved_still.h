// SavedEqualsLive, "still": what is saved does not move while it is saved.
//
//   {"what": "still"}
//
// A window is one call that saves, on another thread than the one on which the
// optimizer steps, and one model of which it saves live parameters that such an
// optimizer holds, not copies of them. No such optimizer steps from the moment
// at which the state was collected until the save has ended. That moment is the
// last state_dict of the model whose result nothing else has taken since (a
// save, a load_state_dict), else the begin of the save.
//
// No window where several threads step: they change the parameters under each
// other's hands on purpose. Unknown where records are missing since then, or
// the process ended in the save. Needs nothing that a plan could leave out.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_STILL_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_STILL_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedStill();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_STILL_H_
