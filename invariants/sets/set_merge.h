// One set of what several hold.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_SET_MERGE_H_
#define TRAINCHECK_INVARIANTS_SETS_SET_MERGE_H_

#include <vector>

#include "invariants/rules/invariant.h"

namespace traincheck {

// Every rule once. A rule of several sets is general if one of them says so,
// holds for the experiments of all, and has the sum of their support; its
// origin lists theirs. Runs are those of all. Name, version and time are the
// caller's.
InvariantSet MergeSets(const std::vector<InvariantSet>& sets);

// Leaves out what a built-in rule says as well: learned rules of the same
// content, whatever their condition. The built-in one has that which follows
// from what it is about, and knows why and what to do.
void LeaveOutDoubles(InvariantSet* set);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_MERGE_H_
