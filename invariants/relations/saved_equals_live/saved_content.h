// SavedEqualsLive, "content" and "loaded": what a checkpoint holds of a model
// is the live model, and what a model took is what it has.
//
// A window is one call that saves or loads and one model that is there in its
// live state; what holds another state of a model (an average, the best so far)
// is no window. Tensors of another type or shape than the live ones are not
// compared.
//
// Unknown where records are missing, where the process ended in the call,
// where a live tensor could not be read and where more was saved than is
// recorded (20,000 entries). Needs the states of parameters and buffers at save
// or load.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CONTENT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CONTENT_H_

#include <memory>

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedContent();

// Makes the hypotheses of all forms that are learned.
std::unique_ptr<Generator> NewSavedGenerator();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_CONTENT_H_
