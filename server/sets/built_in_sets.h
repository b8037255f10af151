// The built-in rules, as a set that the store holds like any other, so that
// runs are checked against a version of it that stays.
//
// Threads: at start only, before anything else saves.
#ifndef TRAINCHECK_SERVER_SETS_BUILT_IN_SETS_H_
#define TRAINCHECK_SERVER_SETS_BUILT_IN_SETS_H_

#include "absl/status/status.h"
#include "server/sets/set_catalog.h"

namespace traincheck::server {

// Saves the rules of this build as the next version of kBuiltInSet, unless the
// newest has them already.
[[nodiscard]] absl::Status SaveBuiltInRules(SetCatalog* sets);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SETS_BUILT_IN_SETS_H_
