// SavedEqualsLive: what a checkpoint holds of a model is the live model.
//
//   {"what": "content"}  each of its tensors equals the live one
//   {"what": "keys"}     every parameter of the model is in it
//   {"what": "loaded"}   after load_state_dict of a model each of its tensors
//                        equals the one that was given
//
// A window is one call that saves (torch.save, torch.distributed.checkpoint,
// safetensors) and one model that is saved in its live state; what holds
// another state of a model (an average, the best so far) is no window.
// Tensors of another type or shape than the live ones are not compared, a
// tied parameter is there if one of its names is.
//
// Unknown where records are missing, where the process ended in the call,
// where a live tensor could not be read and where more was saved than is
// recorded (20,000 entries). Needs the states of parameters and buffers at save
// or load.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedEqualsLive();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_EQUALS_LIVE_H_
