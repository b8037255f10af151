// Group commit: one thread that turns whatever is queued into one synced
// write, so that many streams share one sync. While a sync runs, the next
// group collects. A lone write is durable after one sync; writes that come one
// by one, as batches of many ranks do, collect for some milliseconds.
//
// Threads: Add and LastError on any thread; `commit` and every `done` run on
// the committer's thread, one at a time.
#ifndef TRAINCHECK_SERVER_STORE_COMMITTER_H_
#define TRAINCHECK_SERVER_STORE_COMMITTER_H_

#include <chrono>
#include <deque>
#include <functional>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "server/store/store.h"

namespace traincheck::server {

class Committer {
 public:
  // Makes all sets durable in one atomic write. May be called again with the
  // same sets after an error.
  using Commit =
      std::function<absl::Status(const std::vector<const WriteSet*>& sets)>;

  struct Options {
    size_t max_group_bytes = 4 << 20;
    // From one group to the next, unless enough for a whole one waits.
    absl::Duration min_interval = absl::Milliseconds(5);
    absl::Duration retry_delay = absl::Seconds(1);
  };

  Committer(Commit commit, const Options& options);
  ~Committer();
  Committer(const Committer&) = delete;
  Committer& operator=(const Committer&) = delete;

  void Add(WriteSet writes, Store::Done done);

  // Why the group at the head of the queue is not durable yet; OK if the last
  // attempt succeeded.
  absl::Status LastError() const;

  // Works off the queue for at most `patience`, or until a write fails, and
  // ends the thread. What is left then was never acknowledged.
  void Close(absl::Duration patience);

 private:
  struct Pending {
    WriteSet writes;
    Store::Done done;
  };

  void Loop();
  // Waits until the next group may begin.
  void AwaitInterval() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: closed and nothing left to do.
  bool NextGroup(std::vector<Pending>* group);
  // Tries until it succeeds; false if it failed and Close was called.
  bool CommitWithRetries(const std::vector<Pending>& group);

  const Commit commit_;
  const Options options_;
  mutable absl::Mutex mutex_;
  std::deque<Pending> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status last_error_ ABSL_GUARDED_BY(mutex_);
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Time give_up_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteFuture();
  // The thread's. The clock may count from the start of the machine, so that
  // its zero is not long ago.
  std::chrono::steady_clock::time_point group_began_ =
      std::chrono::steady_clock::time_point::min();
  std::thread thread_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_STORE_COMMITTER_H_
