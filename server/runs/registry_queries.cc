#include <algorithm>
#include <utility>

#include "server/runs/registry.h"

// What the registry tells.
namespace traincheck::server {

std::vector<v1::Run> Registry::Runs() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Run> runs;
  for (const auto& [id, run] : runs_) {
    runs.push_back(ToApi(run, options_.now(), options_.lost_after));
  }
  std::sort(runs.begin(), runs.end(), [](const v1::Run& a, const v1::Run& b) {
    return a.started_unix_ns() < b.started_unix_ns();
  });
  return runs;
}

std::vector<v1::Run> Registry::RunsNotEnded() const {
  absl::MutexLock lock(&mutex_);
  std::vector<v1::Run> runs;
  for (const std::string& id : not_ended_) {
    runs.push_back(ToApi(runs_.at(id), options_.now(), options_.lost_after));
  }
  return runs;
}

std::optional<v1::Run> Registry::Run(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return ToApi(at->second, options_.now(), options_.lost_after);
}

RunView::Process Registry::ViewOf(const ProcessEntry& process,
                                  std::string reason) {
  return {
      .number = process.books.number(),
      .next_batch = process.durable_next_batch,
      .end = process.durable_end,
      .refused = !process.books.place_conflict().empty() ||
                 process.books.records_deleted(),
      .connected = process.stream != 0,
      .is_main = IsMain(process.books),
      .attempt = process.books.attempt(),
      .rank = process.books.has_rank()
                  ? std::optional<int32_t>(process.books.rank())
                  : std::nullopt,
      .world = process.books.world(),
      .plan_version = process.books.has_plan_version()
                          ? std::optional(process.books.plan_version())
                          : std::nullopt,
      .plan_after_step = process.books.has_plan_after_step()
                             ? std::optional(process.books.plan_after_step())
                             : std::nullopt,
      .name = ProcessName(process.books),
      .reason = std::move(reason),
      .torch_version = process.books.torch_version()};
}

std::optional<RunView> Registry::View(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  const RunState& run = at->second;
  RunView view = {.id = id,
                  .number = run.run.number(),
                  .experiment = run.run.experiment(),
                  .check_set = run.run.check_set(),
                  .is_reference = run.run.role() == v1::RUN_ROLE_REFERENCE,
                  .ended = run.run.ended_unix_ns() != 0,
                  .last_step = std::nullopt,
                  .records_deleted = run.run.records_deleted_unix_ns() != 0,
                  .processes = {}};
  const uint32_t last = LastAttempt(run);
  for (const auto& [number, process] : run.processes) {
    view.processes.push_back(ViewOf(
        process,
        ReasonOf(process.books, last, options_.now(), options_.lost_after)));
    if (IsMain(process.books) && process.books.has_last_step()) {
      view.last_step = std::max(view.last_step.value_or(0),
                                uint64_t{process.books.last_step()});
    }
  }
  return view;
}

std::optional<Registry::Outline> Registry::OutlineOf(
    const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return Outline{at->second.run.ended_unix_ns() != 0,
                 !at->second.run.check_set().empty()};
}

std::optional<std::string> Registry::OwnerOf(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return at->second.run.owner();
}

std::optional<uint64_t> Registry::NumberOf(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return at->second.run.number();
}

std::vector<std::string> Registry::RunIds() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  return ids;
}

uint64_t Registry::quarantined_batches() const {
  absl::MutexLock lock(&mutex_);
  return quarantined_batches_;
}

}  // namespace traincheck::server
