#include "server/control/queries.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/control/version.h"
#include "server/plans/run_plans.h"

namespace traincheck::server {
Queries::Queries(Dependencies dependencies)
    : use_(std::move(dependencies)), started_(use_.now()) {}

v1::ServerStatus Queries::Status() const {
  v1::ServerStatus status;
  status.set_version(kServerVersion);
  status.set_store_id(use_.store->id());
  const StoreHealth health = use_.store->Health();
  status.set_stored_bytes(health.stored_bytes);
  status.set_free_bytes(health.free_bytes);
  status.set_store_error(std::string(health.error.message()));
  status.set_uptime_s(absl::ToDoubleSeconds(use_.now() - started_));
  status.set_quarantined_batches(use_.registry->quarantined_batches());
  // One run after the other: streams do not wait until all are put together.
  for (const RunningRun& running : use_.registry->RunningRuns()) {
    absl::StatusOr<v1::Run> run = Run(running.id);
    // It may have ended or been deleted since.
    if (run.ok() && run->ended_unix_ns() == 0) {
      *status.add_runs() = *std::move(run);
    }
  }
  return status;
}

absl::StatusOr<v1::Run> Queries::Run(const std::string& id) const {
  absl::StatusOr<v1::Run> run = use_.registry->Run(id);
  if (!run.ok()) return run;
  // Behind the registry's look and without its lock: the progress may be read
  // from the store.
  use_.checks->AddProgress(&*run);
  return run;
}

// The answer comes from memory alone, because watchers ask often.
bool Queries::HasEnded(const std::string& id) const {
  const std::optional<RunOutline> run = use_.registry->OutlineOf(id);
  return run.has_value() && run->ended;
}

bool Queries::IsOver(const std::string& id) const {
  const std::optional<RunOutline> run = use_.registry->OutlineOf(id);
  if (!run.has_value() || !run->ended) return false;
  if (run->check_set.empty()) return true;
  // Violations come until the check has read all of it.
  const std::optional<v1::CheckProgress> progress = use_.checks->Progress(id);
  return progress.has_value() && progress->finished();
}

absl::StatusOr<std::vector<v1::Violation>> Queries::Violations(
    const std::string& run) const {
  // The board knows only runs with violations, and a run without any must not
  // look like one that is not there.
  if (!use_.registry->OutlineOf(run).has_value()) {
    return NoSuchRun(run);
  }
  return use_.violations->List(run);
}

absl::StatusOr<v1::SetPlan> Queries::SetPlan(const std::string& name) const {
  const absl::StatusOr<InvariantSet> set = use_.sets->Load(name);
  if (!set.ok()) return set.status();
  return PlanOfSet(*set);
}

}  // namespace traincheck::server
