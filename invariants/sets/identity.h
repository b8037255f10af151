// What is derived from an invariant's content: its id and its words.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_IDENTITY_H_
#define TRAINCHECK_INVARIANTS_SETS_IDENTITY_H_

#include <string>

#include "invariants/rules/invariant.h"

namespace traincheck {

// Hash of relation, parameters and precondition.
std::string IdOf(const Invariant& invariant);
// The rule with its precondition in plain English.
std::string TextOf(const Invariant& invariant);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_IDENTITY_H_
