#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "server/runs/registry.h"

// What the registry tells.
namespace traincheck::server {
namespace {

void Count(v1::ProcessState state, RunningRun::Processes* processes) {
  switch (state) {
    case v1::PROCESS_STATE_STREAMING:
      ++processes->streaming;
      break;
    case v1::PROCESS_STATE_DISCONNECTED:
      ++processes->disconnected;
      break;
    case v1::PROCESS_STATE_LOST:
      ++processes->lost;
      break;
    default:
      ++processes->ended;
  }
}

RunningRun NumbersOf(const RunState& state) {
  RunningRun run = {.id = state.run.id(),
                    .experiment = state.run.experiment(),
                    .check_set = state.run.check_set(),
                    .last_step = std::nullopt,
                    .dropped_records = 0,
                    .processes = {}};
  for (const auto& [number, process] : state.processes) {
    const stored::Process& books = process.books;
    Count(ApiState(books), &run.processes);
    run.dropped_records += DroppedRecords(books);
    // Steps of a helper process or of a loader's worker are not the run's.
    if (IsMain(books) && books.has_last_step()) {
      run.last_step = std::max(run.last_step.value_or(0),  //
                               uint64_t{books.last_step()});
    }
  }
  return run;
}

}  // namespace

absl::Status NoSuchRun(const std::string& run) {
  return absl::NotFoundError(absl::StrCat(
      "there is no run \"", run, "\": traincheckctl runs list names all"));
}

// Status, metrics and the deletion of sets ask for these while trainings
// stream, so the answer is numbers and not processes.
std::vector<RunningRun> Registry::RunningRuns() const {
  absl::MutexLock lock(&mutex_);
  std::vector<RunningRun> runs;
  for (const std::string& id : not_ended_) {
    runs.push_back(NumbersOf(runs_.at(id)));
  }
  return runs;
}

// A shelved run is read from the store while the lock is held, so that it
// cannot be taken off the shelf, changed or deleted between the look and the
// read.
absl::StatusOr<v1::Run> Registry::Run(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  RunState read;
  const absl::StatusOr<const RunState*> run = Whole(id, &read);
  if (!run.ok()) return run.status();
  return ToApi(**run, options_.now(), options_.lost_after);
}

RunView::Process Registry::ViewOf(const ProcessEntry& process,
                                  std::string reason) {
  return {
      .number = process.books.number(),
      // What the synced store has, for those who read there: the books are
      // ahead of it.
      .next_batch = process.durable_next_batch,
      .end = process.durable_end,
      .refused = !process.books.place_conflict().empty() ||
                 process.books.records_deleted(),
      .records_deleted = process.books.place_conflict().empty() &&
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

// The view is a copy: checks and jobs work on it for minutes without the lock.
// What comes meanwhile is in the next view.
absl::StatusOr<RunView> Registry::View(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  RunState read;
  const absl::StatusOr<const RunState*> whole = Whole(id, &read);
  if (!whole.ok()) return whole.status();
  const RunState& run = **whole;
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

// The answer is cheap for every run, shelved ones included: descriptions stay
// in memory.
std::optional<RunOutline> Registry::OutlineOf(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  const stored::Run& run = at->second.run;
  return RunOutline{.ended = run.ended_unix_ns() != 0,
                    .experiment = run.experiment(),
                    .check_set = run.check_set()};
}

std::optional<std::string> Registry::OwnerOf(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  // Also of a run that is being deleted: until all of it is gone, what is left
  // is its owner's.
  for (const auto* const runs : {&runs_, &withdrawn_}) {
    const auto at = runs->find(id);
    if (at != runs->end()) return at->second.run.owner();
  }
  return std::nullopt;
}

std::optional<uint64_t> Registry::NumberOf(const std::string& id) const {
  absl::MutexLock lock(&mutex_);
  const auto at = runs_.find(id);
  if (at == runs_.end()) return std::nullopt;
  return at->second.run.number();
}

// Only LiveChecks::Start asks for all ids.
std::vector<std::string> Registry::RunIds() const {
  absl::MutexLock lock(&mutex_);
  std::vector<std::string> ids;
  for (const auto& [id, run] : runs_) ids.push_back(id);
  return ids;
}

absl::StatusOr<std::vector<std::string>> Registry::Find(
    const RunQuery& query) const {
  absl::MutexLock lock(&mutex_);
  // With the id, runs that started in the same nanosecond keep their order from
  // page to page.
  using Place = std::pair<uint64_t, std::string>;  // in the order of starts
  std::optional<Place> end;
  if (!query.before.empty()) {
    const auto at = runs_.find(query.before);
    if (at == runs_.end() ||
        (query.sees && !query.sees(at->second.run.owner()))) {
      return NoSuchRun(query.before);
    }
    end = {at->second.run.started_unix_ns(), at->first};
  }
  std::vector<Place> found;
  for (const auto& [id, state] : runs_) {
    const stored::Run& run = state.run;
    Place place = {run.started_unix_ns(), id};
    if ((!query.experiment.empty() && run.experiment() != query.experiment) ||
        run.started_unix_ns() < query.started_since_unix_ns ||
        !absl::StartsWith(id, query.id_prefix) || (end && place >= *end) ||
        (query.sees && !query.sees(run.owner()))) {
      continue;
    }
    found.push_back(std::move(place));
  }
  std::sort(found.begin(), found.end());
  // The newest ones stand at the end. A page is cut off in front, and its first
  // run is the `before` of the next one.
  const size_t left_out = query.newest > 0 && found.size() > query.newest
                              ? found.size() - query.newest
                              : 0;
  std::vector<std::string> ids;
  for (size_t i = left_out; i < found.size(); ++i) {
    ids.push_back(std::move(found[i].second));
  }
  return ids;
}

// Retention chooses among all runs and must not read the processes of those
// that are shelved: their bytes are kept in memory.
std::vector<RunUse> Registry::Uses() const {
  absl::MutexLock lock(&mutex_);
  std::vector<RunUse> uses;
  for (const auto& [id, state] : runs_) {
    uses.push_back({.id = id,
                    .owner = state.run.owner(),
                    .ended_unix_ns = state.run.ended_unix_ns(),
                    .stored_bytes = state.StoredBytes(),
                    .is_kept = state.run.kept(),
                    .is_checked = !state.run.check_set().empty()});
  }
  return uses;
}

uint64_t Registry::quarantined_batches() const {
  absl::MutexLock lock(&mutex_);
  return quarantined_batches_;
}

}  // namespace traincheck::server
