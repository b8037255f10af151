#include "server/checking/check_queue.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "absl/time/clock.h"

namespace traincheck::server {
namespace {

// How late a run may be looked at that has rested; short beside a rest.
constexpr absl::Duration kLookAgain = absl::Milliseconds(2);

}  // namespace

void CheckQueue::Wake(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  // Also the run that the worker is at: what came behind its look is not
  // missed.
  due_.insert(run);
}

void CheckQueue::WakeLater(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  due_later_.insert(run);
}

void CheckQueue::OnSet(const std::string& name) {
  absl::MutexLock lock(&mutex_);
  for (auto run = waiting_.begin(); run != waiting_.end();) {
    if (run->second.count(name) == 0) {
      ++run;
      continue;
    }
    due_.insert(run->first);
    // The worker says anew what the run waits for.
    run = waiting_.erase(run);
  }
}

void CheckQueue::Forget(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  const auto left = [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return at_ != run;
  };
  // The worker may still queue writes for the run. They must lie before the
  // deletion that the caller queues.
  mutex_.Await(absl::Condition(&left));
  // Behind the wait: the worker's own look may have made it due again.
  due_.erase(run);
  due_later_.erase(run);
  waiting_.erase(run);
  progress_.erase(run);
  behind_.erase(run);
  // The next run of this id begins without the rest of the one that is gone.
  resting_.erase(run);
  forgotten_.insert(run);
}

void CheckQueue::Stop() {
  absl::MutexLock lock(&mutex_);
  stopping_ = true;
}

std::optional<v1::CheckProgress> CheckQueue::Progress(
    const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  const auto at = progress_.find(run);
  if (at == progress_.end()) return std::nullopt;
  v1::CheckProgress progress = at->second;
  // A run that is due later has no news to be read.
  const bool busy = due_.count(run) > 0 || at_ == run;
  progress.set_caught_up(!busy);
  progress.set_finished(progress.finished() && !busy);
  return progress;
}

// Distinguishes "nothing was published yet" from "nothing will be": the second
// is read from the store (LiveChecks::Progress).
bool CheckQueue::IsAhead(const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  return at_ == run || due_.contains(run) || due_later_.contains(run);
}

void CheckQueue::Rest(const std::string& run, absl::Duration time) {
  absl::MutexLock lock(&mutex_);
  // It stays due meanwhile: a run that rests is passed over and not forgotten.
  resting_[run] =
      std::chrono::steady_clock::now() + absl::ToChronoNanoseconds(time);
}

// The next in the order of ids, so that a busy run does not starve the others.
std::string CheckQueue::NextDue() const {
  const auto first_awake = [&](auto from, auto to) {
    return std::find_if(from, to,
                        [&](const std::string& run)
                            ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
                              return !resting_.contains(run);
                            });
  };
  // Behind the run that was given last, and then from the beginning: each run
  // that is due comes once before any comes twice.
  const auto behind_last = due_.upper_bound(last_);
  auto next = first_awake(behind_last, due_.end());
  if (next != due_.end()) return *next;
  next = first_awake(due_.begin(), behind_last);
  return next == behind_last ? "" : *next;
}

bool CheckQueue::HasNext() const {
  return stopping_ || !due_later_.empty() || !NextDue().empty();
}

// Runs whose rest is over may be given to the worker again, if they are due.
void CheckQueue::WakeRested() {
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(resting_, [&](const auto& run) { return run.second <= now; });
}

// A wait with a deadline is one by the host's clock, which may be set back by
// hours meanwhile. So where all that is due rests it is looked at again soon.
void CheckQueue::AwaitNext() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return stopping_ || !due_.empty() || !due_later_.empty();
  };
  for (;;) {
    // Asks only whether anything is due at all, since the condition is
    // evaluated whenever the lock is released; what rests is sorted out behind.
    mutex_.Await(absl::Condition(&ready));
    WakeRested();
    if (HasNext()) return;
    mutex_.Unlock();
    absl::SleepFor(kLookAgain);
    mutex_.Lock();
  }
}

std::optional<CheckQueue::Due> CheckQueue::AwaitDue() {
  absl::MutexLock lock(&mutex_);
  // First: Forget waits for the worker to be away from its run.
  at_.clear();
  AwaitNext();
  if (stopping_) return std::nullopt;
  const std::string next = NextDue();
  // Nothing that trains is due: one of those that were put off has its turn.
  if (next.empty()) {
    at_ = *due_later_.begin();
    due_later_.erase(due_later_.begin());
  } else {
    last_ = at_ = next;
    due_.erase(next);
  }
  return Due{at_, std::exchange(forgotten_, {})};
}

void CheckQueue::WaitForSets(const std::string& run,
                             std::set<std::string> names) {
  absl::MutexLock lock(&mutex_);
  waiting_[run] = std::move(names);
}

void CheckQueue::StopWaiting(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  waiting_.erase(run);
}

bool CheckQueue::IsWaiting(const std::string& run) const {
  absl::MutexLock lock(&mutex_);
  return waiting_.count(run) > 0;
}

void CheckQueue::Publish(const std::string& run,
                         const v1::CheckProgress& progress) {
  absl::MutexLock lock(&mutex_);
  progress_[run] = progress;
}

void CheckQueue::Drop(const std::string& run) {
  absl::MutexLock lock(&mutex_);
  progress_.erase(run);
}

size_t CheckQueue::RunsInMemory() const {
  absl::MutexLock lock(&mutex_);
  return progress_.size() + due_.size() + due_later_.size();
}

void CheckQueue::SetBehind(const std::string& run, uint64_t batches) {
  absl::MutexLock lock(&mutex_);
  if (batches == 0) {
    behind_.erase(run);
  } else {
    behind_[run] = batches;
  }
}

// A metric shows this number: it grows where checks are slower than trainings.
uint64_t CheckQueue::BatchesBehind() const {
  absl::MutexLock lock(&mutex_);
  uint64_t batches = 0;
  for (const auto& [run, of_run] : behind_) batches += of_run;
  return batches;
}

}  // namespace traincheck::server
