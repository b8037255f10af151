#include "server/store/committer.h"

#include <string>
#include <utility>

#include "absl/time/clock.h"
#include "base/logging.h"

namespace traincheck::server {
namespace {

// A nap is short beside Options::min_interval, which it delays by at most its
// own length.
constexpr absl::Duration kNap = absl::Milliseconds(1);

}  // namespace

Committer::Committer(Commit commit, const Options& options)
    : commit_(std::move(commit)),
      options_(options),
      thread_([this] { Loop(); }) {}

Committer::~Committer() { Close(absl::ZeroDuration()); }

void Committer::Add(WriteSet writes, Store::Done done) {
  absl::MutexLock lock(&mutex_);
  queued_bytes_ += writes.bytes();
  queue_.push_back({std::move(writes), std::move(done)});
}

absl::Status Committer::LastError() const {
  absl::MutexLock lock(&mutex_);
  return last_error_;
}

// Wakes the thread and waits for it. Without the join the store's database
// could be destroyed while a group is written.
void Committer::Close(absl::Duration patience) {
  {
    absl::MutexLock lock(&mutex_);
    // The first call decides: the destructor's, without patience, must not cut
    // short a Close that is under way.
    if (!closing_) give_up_ = absl::Now() + patience;
    closing_ = true;
  }
  if (thread_.joinable()) thread_.join();
}

void Committer::Loop() {
  std::vector<Pending> group;
  while (NextGroup(&group)) {
    // Nothing of the group is acknowledged: relays still have it and send it
    // again.
    if (!CommitWithRetries(group)) return;
    for (const Pending& pending : group) {
      // Behind the sync and nowhere else: what these acknowledge is on disk.
      if (pending.done) pending.done();
    }
  }
}

// In naps: a wait with a deadline is one by the host's clock, which may be set
// back by hours meanwhile.
void Committer::AwaitInterval() {
  const auto end =
      group_began_ + absl::ToChronoNanoseconds(options_.min_interval);
  while (!closing_ && queued_bytes_ < options_.max_group_bytes &&
         std::chrono::steady_clock::now() < end) {
    mutex_.Unlock();
    absl::SleepFor(kNap);
    mutex_.Lock();
  }
  group_began_ = std::chrono::steady_clock::now();
}

bool Committer::NextGroup(std::vector<Pending>* group) {
  group->clear();
  absl::MutexLock lock(&mutex_);
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return closing_ || !queue_.empty();
  };
  mutex_.Await(absl::Condition(&ready));
  AwaitInterval();
  // Looked at between groups alone: a write to the disk that has begun cannot
  // be called back.
  if (closing_ && absl::Now() > give_up_) return false;
  size_t bytes = 0;
  // At least one, however large it is.
  while (!queue_.empty() &&
         (group->empty() ||
          bytes + queue_.front().writes.bytes() <= options_.max_group_bytes)) {
    bytes += queue_.front().writes.bytes();
    queued_bytes_ -= queue_.front().writes.bytes();
    group->push_back(std::move(queue_.front()));
    queue_.pop_front();
  }
  return !group->empty();
}

// A disk that refuses (full, read-only) is tried again for as long as the
// daemon runs: batches wait in the queue, whose size ByteBudget bounds, and
// relays spool.
bool Committer::CommitWithRetries(const std::vector<Pending>& group) {
  std::vector<const WriteSet*> sets;
  for (const Pending& pending : group) sets.push_back(&pending.writes);
  while (true) {
    // The same group until it succeeds: nothing behind it may become durable
    // before it.
    absl::Status status = commit_(sets);
    absl::MutexLock lock(&mutex_);
    if (status.ok()) {
      if (!last_error_.ok()) spdlog::info("store writes again");
      last_error_ = absl::OkStatus();
      return true;
    }
    spdlog::error(
        "store write failed, nothing is acknowledged until it "
        "succeeds error=\"{}\"",
        std::string(status.message()));
    last_error_ = std::move(status);
    if (closing_) return false;
    const auto closing = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closing_;
    };
    // Close ends the wait, so that a daemon with a full disk stops at once.
    mutex_.AwaitWithTimeout(absl::Condition(&closing), options_.retry_delay);
  }
}

}  // namespace traincheck::server
