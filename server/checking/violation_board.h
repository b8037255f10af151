// All violations. Those of runs whose check goes on are in memory; those of
// others ("shelved") are read from the store when somebody asks for them, and
// of each only what watchers need to find it stays. Watchers read the board at
// their own pace, so that a slow one never holds up the checker.
//
// The store must be closed before the board is destroyed.
//
// Threads: safe on any thread. One thread calls TakeOffShelf, Post, KeepOnly
// and Shelve.
#ifndef TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_
#define TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "checker/checker.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/change_bells.h"
#include "server/store/store.h"

namespace traincheck::server {

class ViolationBoard {
 public:
  using Clock = std::function<absl::Time()>;

  // With everything shelved. DataLoss.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<ViolationBoard>> Load(
      Store* store, Clock now = absl::Now);
  ViolationBoard(const ViolationBoard&) = delete;
  ViolationBoard& operator=(const ViolationBoard&) = delete;

  // Takes the violations of the run into memory, for a check that begins.
  // DataLoss.
  [[nodiscard]] absl::Status TakeOffShelf(const std::string& run);
  // Nothing more is posted of the run for now: its violations leave memory, as
  // soon as the store has them.
  void Shelve(const std::string& run);

  // Posts what a checker of run number `run` found, in one atomic write with
  // `writes` and, if anything changes by it, what `more` adds. Posting the same
  // again changes nothing. Watchers see it once it is durable.
  // REQUIRES: the run is not shelved.
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
  // what else is posted of it came from incomplete records and is taken back,
  // but for the attempts in `unread`, of which it could not read all.
  // REQUIRES: the run is not shelved.
  void KeepOnly(const std::string& run, const std::vector<Violation>& all,
                const std::set<uint32_t>& unread = {});

  // Forgets the violations of a run; the store's are the caller's to delete.
  void Remove(const std::string& run);

  // Of a run, by time of first sight. DataLoss.
  [[nodiscard]] absl::StatusOr<std::vector<v1::Violation>> List(
      const std::string& run) const;
  // Runs that have violations, in the order in which they began.
  std::vector<std::string> Runs() const;
  // nullopt: there is none. DataLoss.
  [[nodiscard]] absl::StatusOr<std::optional<v1::Violation>> Find(
      const std::string& id) const;

  struct ByGrade {
    uint64_t alerts = 0;
    uint64_t advice = 0;
  };
  // Of all runs.
  struct Counts {
    ByGrade violations;
    ByGrade open_incidents;
    ByGrade found;  // violations that are new since Load
  };
  Counts Count() const;
  // Runs whose violations are in memory.
  size_t RunsInMemory() const;

  struct Changes {
    std::vector<v1::Violation> violations;  // oldest change first
    uint64_t revision = 0;                  // to ask from the next time
    bool complete = true;                   // there are no further ones now
  };
  // The first `limit` violations of `run` (empty: all) that changed durably
  // after revision `after`. DataLoss.
  [[nodiscard]] absl::StatusOr<Changes> ChangesAfter(
      uint64_t after, const std::string& run, size_t limit = SIZE_MAX) const;
  // Of the newest durable change.
  uint64_t Revision() const;
  // Returns once there is any revision above `after`, Wake was called, or
  // after `patience`.
  void WaitForChange(uint64_t after, absl::Duration patience) const;
  // Ring when violations have changed durably.
  ChangeBells& bells() const { return bells_; }
  // Lets every waiter look at what it waits for.
  void Wake();

 private:
  // The violations of one run.
  struct OfRun {
    std::string run;
    bool shelved = false;
    uint64_t pending_writes = 0;                 // on their way to the store
    Counts shelved_counts;                       // while it is shelved
    std::map<std::string, v1::Violation> by_id;  // empty while it is shelved
  };
  // Where a change is: the run's number, and the violation's id in run_of_.
  struct Change {
    uint64_t run = 0;
    const std::string* violation = nullptr;
  };
  // What a watcher is to get; without a violation: it is shelved.
  struct Changed {
    uint64_t run = 0;
    std::string id;
    std::optional<v1::Violation> violation;
  };

  ViolationBoard(Store* store, Clock now)
      : store_(*store), now_(std::move(now)) {}

  OfRun& OfRunNumber(uint64_t number, const std::string& run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::optional<uint64_t> NumberOf(const std::string& run) const
      ABSL_SHARED_LOCKS_REQUIRED(mutex_);
  void AddStored(uint64_t run, const v1::Violation& violation)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Shelves the run if it is to leave and the store has all of it.
  void ShelveIfStored(uint64_t run) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // False: nothing changes. Puts the violation where it does.
  bool Update(uint64_t run, const Violation& found, Known how, WriteSet* writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Queues the set; watchers see the board as it is now once it is durable.
  void Write(uint64_t run, bool changes, WriteSet writes)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // known: the board had the run when the write was queued. changes: the write
  // changes violations.
  void OnDurable(uint64_t run, bool known, bool changes, uint64_t revision);
  // ChangesAfter, without what is shelved.
  std::vector<Changed> FindChanges(uint64_t after, const std::string& run,
                                   size_t limit, Changes* changes) const;

  Store& store_;
  const Clock now_;
  mutable absl::Mutex mutex_;
  mutable absl::CondVar changed_;
  mutable ChangeBells bells_;
  std::map<uint64_t, OfRun> runs_ ABSL_GUARDED_BY(mutex_);  // by number
  std::map<std::string, uint64_t> numbers_ ABSL_GUARDED_BY(mutex_);  // by run
  // Numbers of runs that leave memory once all of them is durable.
  std::set<uint64_t> leaving_ ABSL_GUARDED_BY(mutex_);
  // Numbers of runs by violation.
  std::unordered_map<std::string, uint64_t> run_of_ ABSL_GUARDED_BY(mutex_);
  std::map<uint64_t, Change> by_revision_ ABSL_GUARDED_BY(mutex_);
  Counts shelved_ ABSL_GUARDED_BY(mutex_);  // of all that is shelved
  uint64_t revision_ ABSL_GUARDED_BY(mutex_) = 0;
  uint64_t durable_revision_ ABSL_GUARDED_BY(mutex_) = 0;
  ByGrade found_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_VIOLATION_BOARD_H_
