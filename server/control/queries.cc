#include "server/control/queries.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "invariants/set_json.h"
#include "server/control/version.h"
#include "server/plans/run_plans.h"

namespace traincheck {
namespace {

// For the disk, while a client waits.
constexpr absl::Duration kPatience = absl::Seconds(5);

absl::Status NoSuchRun(const std::string& id) {
  return absl::NotFoundError(
      absl::StrCat("there is no run \"", id, "\": see the list of runs"));
}

}  // namespace

Queries::Queries(Dependencies dependencies)
    : use_(std::move(dependencies)), started_(use_.now()) {}

v1::Run Queries::WithCheck(v1::Run run) const {
  if (run.check_set().empty()) return run;
  *run.mutable_check() =
      use_.checks->Progress(run.id()).value_or(v1::CheckProgress());
  return run;
}

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
  for (v1::Run& run : use_.registry->RunsNotEnded()) {
    *status.add_runs() = WithCheck(std::move(run));
  }
  return status;
}

absl::StatusOr<v1::Run> Queries::Keep(const v1::KeepRunRequest& request) const {
  absl::Status kept = use_.registry->Keep(request.run(), request.keep());
  // Its write is queued before this one.
  if (kept.ok()) kept = use_.store->WriteAndWait(WriteSet(), kPatience);
  if (!kept.ok()) return kept;
  return Run(request.run());
}

absl::StatusOr<v1::BackupReply> Queries::Backup(
    const std::string& folder) const {
  const absl::StatusOr<uint64_t> bytes = use_.store->Backup(folder);
  if (!bytes.ok()) return bytes.status();
  spdlog::info("backup made folder=\"{}\" bytes={}", folder, *bytes);
  v1::BackupReply reply;
  reply.set_folder(folder);
  reply.set_bytes(*bytes);
  return reply;
}

std::vector<v1::Run> Queries::Runs() const {
  std::vector<v1::Run> runs = use_.registry->Runs();
  for (v1::Run& run : runs) run = WithCheck(std::move(run));
  return runs;
}

absl::StatusOr<v1::Run> Queries::Run(const std::string& id) const {
  std::optional<v1::Run> run = use_.registry->Run(id);
  if (!run.has_value()) return NoSuchRun(id);
  return WithCheck(*std::move(run));
}

bool Queries::IsOver(const std::string& id) const {
  const absl::StatusOr<v1::Run> run = Run(id);
  return run.ok() && run->status() != v1::RUN_STATUS_RUNNING &&
         (!run->has_check() || run->check().finished());
}

absl::StatusOr<std::vector<v1::Violation>> Queries::Violations(
    const std::string& run) const {
  if (!run.empty() && !use_.registry->Run(run).has_value()) {
    return NoSuchRun(run);
  }
  return use_.board->List(run);
}

absl::StatusOr<v1::Violation> Queries::Violation(const std::string& id) const {
  std::optional<v1::Violation> violation = use_.board->Find(id);
  if (!violation.has_value()) {
    return absl::NotFoundError(
        absl::StrCat("there is no violation \"", id, "\""));
  }
  return *std::move(violation);
}

absl::StatusOr<v1::SetPlan> Queries::SetPlan(const std::string& name) const {
  const absl::StatusOr<InvariantSet> set = use_.sets->Load(name, 0);
  if (!set.ok()) return set.status();
  return PlanOfSet(*set);
}

absl::StatusOr<v1::SetSummary> Queries::ImportUntrusted(
    const v1::ImportSetRequest& request) const {
  absl::StatusOr<InvariantSet> set = SetFromJsonUntrusted(request.json());
  if (!set.ok()) return set.status();
  if (!request.name().empty()) set->name = request.name();
  if (absl::Status s = CheckSetName(set->name); !s.ok()) return s;
  set->created_unix_ns = absl::ToUnixNanos(use_.now());
  return use_.sets->Save(*std::move(set));
}

}  // namespace traincheck
