// Deletes runs: those that a user names, wholly, and the records of those that
// are over the limits of retention, but not of those that a user keeps. Gives
// their room back to the disk.
//
// Threads: Start and Stop on one thread, in this order; Delete and Keep on any.
#ifndef TRAINCHECK_SERVER_RETENTION_RUN_CLEANER_H_
#define TRAINCHECK_SERVER_RETENTION_RUN_CLEANER_H_

#include <atomic>
#include <cstdint>
#include <deque>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/live_checks.h"
#include "server/checking/violation_board.h"
#include "server/retention/retention_rule.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class RunCleaner {
 public:
  // All must outlive the object.
  struct Dependencies {
    Store* store;
    Registry* registry;
    LiveChecks* checks;
    ViolationBoard* board;
    const SetCatalog* sets;
    const RunPins* pins;
    RetentionLimits limits;
    // How often the limits are looked at.
    absl::Duration period = absl::Minutes(1);
  };

  explicit RunCleaner(const Dependencies& dependencies) : use_(dependencies) {}
  ~RunCleaner() { Stop(); }
  RunCleaner(const RunCleaner&) = delete;
  RunCleaner& operator=(const RunCleaner&) = delete;

  void Start();
  // Room that was not given back yet comes back with later deletions.
  void Stop();

  // Deletes a run with its records, verdicts and violations. It is gone when
  // this returns; its room comes back a little later. NotFound, or
  // FailedPrecondition saying who needs the run.
  [[nodiscard]] absl::StatusOr<v1::DeleteRunReply> Delete(
      const std::string& run);

  // Takes a run out of retention, or puts it back; durable when this returns.
  // NotFound.
  [[nodiscard]] absl::Status Keep(const std::string& run, bool keep);

 private:
  void Loop();
  void ApplyLimits();
  // Runs that the newest version of some set was learned from.
  [[nodiscard]] absl::StatusOr<std::set<std::string>> LearnedFrom() const;
  void GiveBack(uint64_t run);
  void QueueGiveBack(uint64_t run);

  const Dependencies use_;
  std::atomic<bool> stopping_ = false;
  absl::Mutex mutex_;
  // Numbers of runs whose room is to be given back.
  std::deque<uint64_t> deleted_ ABSL_GUARDED_BY(mutex_);
  std::thread thread_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RETENTION_RUN_CLEANER_H_
