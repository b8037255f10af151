// The capture plan of a set of invariants: the closure of what its rules and
// their preconditions read, so that under it none is silently undecidable.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_SET_PLAN_H_
#define TRAINCHECK_INVARIANTS_SETS_SET_PLAN_H_

#include <vector>

#include "invariants/rules/invariant.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// A selective plan without a version (PlanText gives it one). Where naming
// the functions would take more than kMaxCapturePlanBytes, it asks for all
// calls.
nlohmann::json PlanOf(const std::vector<Invariant>& invariants);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_PLAN_H_
