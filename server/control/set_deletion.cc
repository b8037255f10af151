#include "server/control/set_deletion.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::server {
namespace {

// Any version counts: a run names the one that it began with, and reads it
// again whenever its check begins anew.
bool IsCheckedAgainst(const RunningRun& run, const std::string& name) {
  const auto selection = ParseSelection(run.check_set);
  return selection.ok() &&
         std::any_of(selection->sets.begin(), selection->sets.end(),
                     [&](const SetRef& set) { return set.name == name; });
}

// A run that begins between this look and the deletion is not held up: its
// check finds no set and waits for one (LiveCheck).
absl::Status CheckUnused(const std::string& name, const Registry& registry,
                         const RulePolicy& policy) {
  // A run that has ended keeps its verdict without the set; one that goes on
  // would lose its rules if its check had to begin anew.
  for (const RunningRun& run : registry.RunningRuns()) {
    if (!IsCheckedAgainst(run, name)) continue;
    return absl::FailedPreconditionError(
        absl::StrCat("run ", run.id, " is checked against set ", name,
                     ": delete the set when the run has ended"));
  }
  const std::vector<std::string> experiments = policy.DeployedFor(name);
  if (experiments.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "set ", name, " is deployed for experiment ", experiments[0],
      ": withdraw it first (traincheckctl sets withdraw --experiment ",
      experiments[0], ")"));
}

}  // namespace

absl::StatusOr<v1::DeleteSetReply> DeleteSet(const std::string& set,
                                             const std::string& owner,
                                             const Registry& registry,
                                             const RulePolicy& policy,
                                             SetCatalog* sets) {
  const absl::StatusOr<SetRef> ref = ParseSetRef(set);
  if (!ref.ok()) return ref.status();
  // First: others learn nothing of runs and experiments.
  if (absl::Status s = sets->CheckOwner(ref->name, owner); !s.ok()) return s;
  absl::Status unused = CheckUnused(ref->name, registry, policy);
  if (!unused.ok()) return unused;
  const absl::StatusOr<std::vector<uint32_t>> versions =
      sets->Delete(set, owner);
  if (!versions.ok()) return versions.status();
  v1::DeleteSetReply reply;
  reply.set_name(ref->name);
  reply.mutable_versions()->Assign(versions->begin(), versions->end());
  spdlog::info("set is deleted set={} versions={}", ref->name,
               versions->size());
  return reply;
}

}  // namespace traincheck::server
