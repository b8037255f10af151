#include "server/retention/run_cleaner.h"

#include <optional>

#include "base/logging.h"
#include "server/store/run_range.h"

namespace traincheck::server {
namespace {

// For what is queued before a deletion or with a client waiting; a disk that
// takes nothing must not stand in the way of making room.
constexpr absl::Duration kPatience = absl::Seconds(5);

}  // namespace

void RunCleaner::Start() {
  thread_ = std::thread([this] { Loop(); });
}

void RunCleaner::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    // Under the lock, so that the loop looks at its condition.
    stopping_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

absl::StatusOr<v1::DeleteRunReply> RunCleaner::Delete(const std::string& run) {
  // First out of the registry, so that neither streams nor readers find it;
  // then out of the checks, which write as well; then from the store, behind
  // all that these had queued.
  const absl::StatusOr<Registry::Withdrawn> withdrawn =
      use_.registry->Withdraw(run, *use_.pins);
  if (!withdrawn.ok()) return withdrawn.status();
  use_.checks->Forget(run);
  // What was queued of the run must not come behind its deletion.
  const absl::Status settled = use_.store->WriteAndWait(WriteSet(), kPatience);
  if (!settled.ok()) {
    spdlog::warn("deletes ahead of queued writes run={} error=\"{}\"", run,
                 std::string(settled.message()));
  }
  WriteSet deletions;
  DeleteAllOf(withdrawn->number, &deletions);
  absl::Status erased = use_.store->Erase(deletions);
  // What is still queued comes behind that, and would bring the run back at the
  // daemon's next start. The number of a run is never given to another.
  if (erased.ok() && !settled.ok()) use_.store->Write(deletions, nullptr);
  // Before the id is free again for another run.
  if (erased.ok()) use_.board->Remove(run);
  use_.registry->Release(run, erased.ok());
  if (!erased.ok()) {
    // Its check was forgotten above: the run is there again, and so is what is
    // left to be checked.
    use_.checks->Wake(run);
    return erased;
  }
  spdlog::info("run deleted run={} records={} bytes={}", run,
               withdrawn->records, withdrawn->bytes);
  // Not here: a compaction may copy gigabytes, and the client waits.
  QueueGiveBack(withdrawn->number);
  v1::DeleteRunReply reply;
  reply.set_records(withdrawn->records);
  reply.set_bytes(withdrawn->bytes);
  return reply;
}

// Waits for the disk: retention must not take the run after a crash that forgot
// the request.
absl::Status RunCleaner::Keep(const std::string& run, bool keep) {
  absl::Status kept = use_.registry->Keep(run, keep);
  // Its write is queued before this one.
  if (kept.ok()) kept = use_.store->WriteAndWait(WriteSet(), kPatience);
  return kept;
}

void RunCleaner::QueueGiveBack(uint64_t run) {
  absl::MutexLock lock(&mutex_);
  deleted_.push_back(run);
}

void RunCleaner::Loop() {
  while (true) {
    std::optional<uint64_t> run;
    {
      absl::MutexLock lock(&mutex_);
      const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
        return stopping_ || !deleted_.empty();
      };
      // One run a turn, so that Stop is seen between two of them.
      mutex_.AwaitWithTimeout(absl::Condition(&ready), use_.period);
      if (stopping_) return;
      if (!deleted_.empty()) {
        run = deleted_.front();
        deleted_.pop_front();
      }
    }
    if (run.has_value()) {
      GiveBack(*run);
    } else {
      ApplyLimits();
    }
  }
}

absl::StatusOr<std::set<std::string>> RunCleaner::LearnedFrom() const {
  const auto sets = use_.sets->List();
  if (!sets.ok()) return sets.status();
  std::set<std::string> runs;
  for (const v1::SetSummary& set : *sets) {
    runs.insert(set.runs().begin(), set.runs().end());
  }
  return runs;
}

// The cleaner's own thread looks at the limits once a period. A run that cannot
// go now is looked at again in the next one, so no error ends the loop.
void RunCleaner::ApplyLimits() {
  if (use_.limits.IsNone()) return;
  const auto learned = LearnedFrom();
  // Without the sets, a run that one was learned from might go.
  if (!learned.ok()) {
    spdlog::warn("retention waits: the sets cannot be read error=\"{}\"",
                 std::string(learned.status().message()));
    return;
  }
  const auto is_checked_to_its_end = [this](const std::string& run) {
    const auto progress = use_.checks->Progress(run);
    // A check that has not read all would never come to a verdict on what is
    // deleted.
    return progress.has_value() && progress->finished();
  };
  for (const std::string& run :
       RunsToDrop(use_.registry->Uses(), *learned, use_.limits, absl::Now(),
                  is_checked_to_its_end)) {
    const absl::StatusOr<Registry::Withdrawn> dropped =
        // A run that somebody reads, or that goes on again, is left; the next
        // look finds it once more.
        use_.registry->DropRecords(run, *use_.pins);
    if (dropped.ok()) {
      QueueGiveBack(dropped->number);
    } else {
      spdlog::info("retention leaves a run run={} reason=\"{}\"", run,
                   std::string(dropped.status().message()));
    }
  }
}

// Gives the disk room of deleted records back. An error is only logged: the
// keys are gone, and their room comes back with later deletions.
void RunCleaner::GiveBack(uint64_t run) {
  // The deletion may still be queued.
  const absl::Status settled = use_.store->WriteAndWait(WriteSet(), kPatience);
  const KeyRange range = BatchesOf(run);
  const absl::Status given =
      settled.ok() ? use_.store->Reclaim(range.from, range.to, &stopping_)
                   : settled;
  if (!given.ok()) {
    spdlog::warn(
        "room of a deleted run is not given back yet run_number={} "
        "error=\"{}\"",
        run, std::string(given.message()));
  }
}

}  // namespace traincheck::server
