// SavedEqualsLive, "keys" and "modules": which parameters of a model a
// checkpoint holds.
//
//   {"what": "keys"}     every one
//   {"what": "modules"}  what one module has of itself (no part of a
//                        BatchNorm alone), and beside an optimizer's state
//                        every trainable parameter that optimizers hold
//
// "keys" is what an experiment's own runs may always have done. In general
// people choose: adapters, a backbone without its head, trainable parameters
// only. A choice goes between modules or between trainable and frozen, and is
// not made in a file from which the training is to go on; "modules" asks for
// the rest.
//
// A window is one model and what the process saves of its live state between
// two steps of its optimizers: a checkpoint may be several files. It is judged
// at the step. A tied parameter is there if one of its names is.
//
// Unknown where records are missing meanwhile, where the process ended before
// it had saved the rest, and where more was saved than is recorded. Needs the
// states of parameters and buffers at save.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_WHOLE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_WHOLE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedWhole();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_WHOLE_H_
