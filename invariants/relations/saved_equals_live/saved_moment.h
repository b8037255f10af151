// SavedEqualsLive, "moment": a save holds the state of its own moment.
//
//   {"what": "moment"}
//
// A window is a save that has the function, the line, the keys and the shapes
// of one before it, between which optimizers changed most of the trainable
// parameters that they hold, and that is large enough to hold these: it has at
// least as many floating elements. Its tensors are not all equal to those of
// the save before. Keys need not name parameters.
//
// Who keeps the best state so far saves it again unchanged, and rightly. So it
// is violated only where, twice in a row, the program also collected the live
// state for the save: state_dict of a model that the optimizer holds, since its
// last step, which no other save and no load_state_dict took, by a program that
// asks for it nowhere but where it saves. (For a best state or an average it is
// asked for elsewhere.) A save that repeats another without that is no window.
//
// Unknown where records are missing between the two or the process ended in the
// save, and where tensors could not be read. Needs the states of parameters at
// save.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MOMENT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MOMENT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* SavedMoment();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_SAVED_MOMENT_H_
