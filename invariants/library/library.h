// The rules that every healthy training obeys, which are built into the daemon:
// one document a family beside this file, in the form of a set
// (docs/invariant-json.md). What a rule's origin says besides is read by
// people: why nothing fails when it is broken, how to mend it, where it is
// written, and whether it is an alert or advice.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_LIBRARY_LIBRARY_H_
#define TRAINCHECK_INVARIANTS_LIBRARY_LIBRARY_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/rules/invariant.h"

namespace traincheck {

// The families in the order of their names: "builtin.amp", "builtin.core", ...
// An error is a defect of this build: it names the document and the place.
[[nodiscard]] absl::StatusOr<std::vector<InvariantSet>> BuiltInFamilies();

// All of them as kBuiltInSet, whose version is the store's to give.
[[nodiscard]] absl::StatusOr<InvariantSet> BuiltInRules();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_LIBRARY_LIBRARY_H_
