#include "server/sets/built_in_sets.h"

#include <utility>

#include "absl/time/clock.h"
#include "invariants/library/library.h"
#include "invariants/sets/set_json.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::server {
namespace {

// Do they say the same, in the words for people too?
bool Same(const InvariantSet& a, const InvariantSet& b) {
  return ToJson(a).at("invariants") == ToJson(b).at("invariants");
}

}  // namespace

absl::Status SaveBuiltInRules(SetCatalog* sets) {
  absl::StatusOr<InvariantSet> rules = BuiltInRules();
  if (!rules.ok()) return rules.status();
  // Only against the newest: a build that goes back to older rules makes one
  // more version, and runs of the one in between keep theirs.
  const absl::StatusOr<InvariantSet> newest = sets->Load(kBuiltInSet);
  // One that cannot be read may be of a newer build, with relations of its own.
  if (newest.ok() && Same(*newest, *rules)) return absl::OkStatus();
  rules->created_unix_ns = absl::ToUnixNanos(absl::Now());
  return sets->Save(*std::move(rules)).status();
}

}  // namespace traincheck::server
