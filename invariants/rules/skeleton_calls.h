// Which calls an agent records in every step, under every plan.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_SKELETON_CALLS_H_
#define TRAINCHECK_INVARIANTS_RULES_SKELETON_CALLS_H_

#include <string>

namespace traincheck {

bool IsOfSkeleton(const std::string& category);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_SKELETON_CALLS_H_
