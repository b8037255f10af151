// SavedEqualsLive: what a checkpoint holds is the live training, and what is
// read of one gets back into it.
//
//   {"what": "content"}  each of a model's tensors equals the live one
//   {"what": "keys"}     every parameter of the model is in it
//   {"what": "modules"}  every one that nobody leaves out on purpose
//   {"what": "loaded"}   after load_state_dict of a model each of its tensors
//                        equals the one that was given
//   {"what": "moment"}   it is not, save after save, the one before once more
//   {"what": "still"}    no optimizer steps while another thread saves
//   {"what": "resumed"}  an optimizer's state that was read reaches an
//   optimizer
//
// saved_content.h (content, loaded), saved_whole.h (keys, modules),
// saved_moment.h, saved_still.h and saved_resumed.h say what their windows are
// and when they are unknown.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedEqualsLive();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_
