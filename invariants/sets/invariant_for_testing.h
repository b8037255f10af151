// Rules as tests write them.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_INVARIANT_FOR_TESTING_H_
#define TRAINCHECK_INVARIANTS_SETS_INVARIANT_FOR_TESTING_H_

#include <string>

#include "invariants/rules/invariant.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// A general rule, read as those of a document are. Aborts with the reason where
// this is none. `precondition`: null for always.
Invariant NewInvariant(const std::string& relation,
                       const nlohmann::json& parameters,
                       const nlohmann::json& precondition = nullptr);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_INVARIANT_FOR_TESTING_H_
