// All violations, kept in the store and in memory (they are few: one for each
// invariant and first window). Watchers read the board at their own pace, so
// that a slow one never holds up the checker.
//
// The store must be closed before the board is destroyed.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_
#define TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checker/checker.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/store/store.h"

namespace traincheck::server {

v1::Violation ToApi(const Violation& violation);

class ViolationBoard {
 public:
  using Clock = std::function<absl::Time()>;

  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ViolationBoard>> Load(
      Store* store, Clock now = absl::Now);
  ViolationBoard(const ViolationBoard&) = delete;
  ViolationBoard& operator=(const ViolationBoard&) = delete;

  // Posts what a checker of run number `run` found, in one atomic write with
  // `writes` and, if anything changes by it, what `more` adds. Posting the same
  // again changes nothing. Watchers see it once it is durable.
  enum class Known {
    kUpdate,
    // A check that goes over known records again passes through earlier states
    // of what is known: only new violations and those that were seen more often
    // than known are posted.
    kKeep,
  };
  using MoreWrites = std::function<void(WriteSet*)>;
  void Post(uint64_t run, const std::vector<Violation>& found,
            Known known = Known::kUpdate, const MoreWrites& more = nullptr,
            WriteSet writes = WriteSet());
  // The check of the run has judged all that was judged before and found `all`:
  // what else is posted of it came from incomplete records and is taken back.
  void KeepOnly(const std::string& run, uint64_t number,
                const std::vector<Violation>& all);

  // Forgets the violations of a run; the store's are the caller's to delete.
  void Remove(const std::string& run);

  // By time of first sight. Empty run: all runs.
  std::vector<v1::Violation> List(const std::string& run) const;
  std::optional<v1::Violation> Find(const std::string& id) const;

  // Of all runs.
  struct Counts {
    uint64_t violations = 0;
    uint64_t alerts = 0;  // incidents that have not ended
    uint64_t advice = 0;
    uint64_t found = 0;  // violations that are new since Load
  };
  Counts Count() const;

  struct Changes {
    std::vector<v1::Violation> violations;  // oldest change first
    uint64_t revision = 0;                  // to ask from the next time
    bool complete = true;                   // there are no further ones now
  };
  // The first `limit` violations of `run` (empty: all) that changed durably
  // after revision `after`.
  Changes ChangesAfter(uint64_t after, const std::string& run,
                       size_t limit = SIZE_MAX) const;
  // Returns once there is any revision above `after`, Wake was called, or
  // after `patience`.
  void WaitForChange(uint64_t after, absl::Duration patience) const;
  // Lets every waiter look at what it waits for.
  void Wake();

 private:
  ViolationBoard(Store* store, Clock now)
      : store_(*store), now_(std::move(now)) {}

  // False: nothing changes. Puts the violation where it does.
  bool Update(uint64_t run, const Violation& found, Known how, WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the set; watchers see the board as it is now once it is durable.
  void Write(WriteSet writes) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Store& store_;
  const Clock now_;
  mutable absl::Mutex mutex_;
  mutable absl::CondVar changed_;
  std::map<std::string, v1::Violation> by_id_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, std::string> by_revision_ ABSL_GUARDED_BY(mutex_);
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t durable_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t found_ ABSL_GUARDED_BY(mutex_) = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_
