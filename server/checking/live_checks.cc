#include "server/checking/live_checks.h"

#include <algorithm>
#include <string>

#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/checking/check_summary.h"

namespace traincheck::server {
namespace {

// Each turn looks at every process of the run, however little has come. Batches
// of many ranks come one by one, so a turn for each would cost the square of
// the ranks: a run that has nothing more to be read rests so long for each
// process that it has, and so many times as long as its turn took ...
constexpr absl::Duration kRestOfProcess = absl::Microseconds(100);
constexpr int kRestFactor = 4;
// ... but a violation is shown no later than this by it.
constexpr absl::Duration kLongestRest = absl::Milliseconds(100);
// A store that cannot be read is opened again about once a second.
constexpr absl::Duration kRestOfStore = absl::Milliseconds(500);

absl::Duration RestAfter(absl::Duration turn, size_t processes) {
  return std::min(std::max(kRestFactor * turn,
                           static_cast<int64_t>(processes) * kRestOfProcess),
                  kLongestRest);
}

}  // namespace

void LiveChecks::Start() {
  for (const std::string& run : use_.registry->RunIds()) {
    const auto outline = use_.registry->OutlineOf(run);
    if (!outline.has_value() || outline->check_set.empty()) continue;
    if (outline->ended) {
      // Most of them are finished; those that train come first.
      queue_.WakeLater(run);
    } else {
      queue_.Wake(run);
    }
  }
  thread_ = std::thread([this] { Loop(); });
}

void LiveChecks::Stop() {
  queue_.Stop();
  if (thread_.joinable()) thread_.join();
}

void LiveChecks::Loop() {
  while (const std::optional<CheckQueue::Due> due = queue_.AwaitDue()) {
    // Before the turn: `due->run` may be a new run of an id that was deleted.
    for (const std::string& run : due->forgotten) checks_.erase(run);
    const absl::Time begin = absl::Now();
    size_t processes = 0;
    const Next next = Turn(due->run, &processes);
    if (next != Next::kRest) Wake(due->run);
    if (next == Next::kReadOn) continue;
    queue_.Rest(due->run, next == Next::kTryAgain
                              ? kRestOfStore
                              : RestAfter(absl::Now() - begin, processes));
  }
  // On this thread and behind its last turn, so that no check is read and saved
  // at once.
  SaveAll();
}

LiveChecks::Next LiveChecks::Turn(const std::string& id, size_t* processes) {
  const absl::StatusOr<RunView> run = use_.registry->View(id);
  if (absl::IsUnavailable(run.status())) return Next::kTryAgain;
  if (!run.ok()) {
    // NotFound: it was deleted since. A run that is damaged is looked at again
    // when something comes, or the daemon starts.
    if (!absl::IsNotFound(run.status())) {
      spdlog::error("run is not checked run={} error={}", id,
                    QuotePrintable(std::string(run.status().message())));
    }
    return Next::kRest;
  }
  if (run->check_set.empty()) return Next::kRest;
  *processes = run->processes.size();
  LiveCheck& check = CheckOf(*run);
  const bool more = check.Turn(*run);
  queue_.SetBehind(id, check.BatchesBehind(*run));
  // What is published says what was covered up to a point at which nothing was
  // left to be read; in between it would change with every batch.
  if (more) return Next::kReadOn;
  // Nor at one at which the store was away.
  if (check.is_held_up()) return Next::kTryAgain;
  Publish(id, check.Progress(*run));
  if (check.IsSettled()) Drop(id);
  return Next::kRest;
}

// Called on the worker's thread, which alone uses checks_.
LiveCheck& LiveChecks::CheckOf(const RunView& run) {
  std::unique_ptr<LiveCheck>& check = checks_[run.id];
  // Another number under this id: the run was deleted and another one began.
  if (check == nullptr || check->run_number() != run.number) {
    check = std::make_unique<LiveCheck>(
        LiveCheck::Dependencies{.store = use_.store,
                                .sets = use_.sets,
                                .board = use_.board,
                                .plans = use_.plans,
                                .queue = &queue_,
                                .snapshot_every = use_.snapshot_every},
        run.number);
  }
  return *check;
}

void LiveChecks::Publish(const std::string& run,
                         const v1::CheckProgress& progress) {
  queue_.Publish(run, progress);
  // A watcher of one run stops when the check of the run ends, also where the
  // check has found nothing.
  if (progress.finished()) use_.board->Wake();
}

void LiveChecks::Drop(const std::string& run) {
  checks_.erase(run);
  use_.board->Shelve(run);
  // From here on Progress reads the store.
  queue_.Drop(run);
}

void LiveChecks::SaveAll() {
  for (const auto& [id, check] : checks_) {
    const absl::StatusOr<RunView> run = use_.registry->View(id);
    // A run that was deleted may have left its id to another one.
    if (run.ok() && run->number == check->run_number()) {
      check->Save(*run);
    }
  }
}

std::optional<v1::CheckProgress> LiveChecks::Progress(
    const std::string& run) const {
  auto progress = queue_.Progress(run);
  // What lies in the store of a run that is still to be looked at may be of an
  // earlier end.
  if (progress.has_value() || queue_.IsAhead(run)) return progress;
  const std::optional<uint64_t> number = use_.registry->NumberOf(run);
  if (!number.has_value()) return std::nullopt;
  const absl::StatusOr<stored::Check> check = ReadCheck(*use_.store, *number);
  if (!check.ok() || !check->finished()) return std::nullopt;
  progress = ToApi(*check);
  progress->set_caught_up(true);
  return progress;
}

void LiveChecks::AddProgress(v1::Run* run) const {
  if (run->check_set().empty()) return;
  *run->mutable_check() = Progress(run->id()).value_or(v1::CheckProgress());
}

}  // namespace traincheck::server
