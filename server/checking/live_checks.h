// Checks every run that names a set, while it runs and after a restart. One
// thread reads from the store by cursor; ingest only wakes it, so that a slow
// check never slows ingest.
//
// The state of an unfinished check is saved every `snapshot_every` and at
// Stop, in one write with the violations found up to there, so that a daemon
// that starts again goes on from there. Saving takes at most kSnapshotShare of
// the time: where it costs more, it happens less often.
//
// A run whose set is not there waits for it. Once it is saved, the run is
// checked from its first batch, also if it has ended: what a restarted daemon
// would find.
//
// Threads: safe on any thread, except Start and Stop, which one owner calls
// in this order. Wake is short and may be called from the store's commit
// thread.
#ifndef TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_
#define TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/run_check.h"
#include "server/checking/told.h"
#include "server/checking/violation_board.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"
#include "server/store/stored.pb.h"

namespace traincheck {

class LiveChecks {
 public:
  // All must outlive the object.
  struct Dependencies {
    Store* store;
    const Registry* registry;
    const SetCatalog* sets;
    ViolationBoard* board;
    // Told of each check that begins; null: nobody.
    RunPlans* plans = nullptr;
    absl::Duration snapshot_every = absl::Seconds(30);
  };

  explicit LiveChecks(const Dependencies& dependencies) : use_(dependencies) {}
  ~LiveChecks() { Stop(); }
  LiveChecks(const LiveChecks&) = delete;
  LiveChecks& operator=(const LiveChecks&) = delete;

  // Begins, with all runs of the store that are not checked to their end.
  void Start();
  // Returns when the thread has finished the batch it is at.
  void Stop();

  // Something of the run became durable.
  void Wake(const std::string& run);

  // A set of that name was saved: runs that wait for it are checked.
  void OnSet(const std::string& name);

  // Returns when nothing of the run's check is in memory or on its way to the
  // store. REQUIRES: the registry does not show the run any more.
  void Forget(const std::string& run);

  // Fills run->check of a run that names a set.
  void AddProgress(v1::Run* run) const;

  // nullopt: the run names no set, or was not looked at yet.
  std::optional<v1::CheckProgress> Progress(const std::string& run) const;

 private:
  // What the worker knows of one run's check.
  struct Active {
    uint64_t run = 0;                 // its number; another one has begun anew
    std::unique_ptr<RunCheck> check;  // null: not begun, failed or finished
    std::string error;                // why there is no check
    bool without_set = false;         // that is why
    // As in the store, or on its way there.
    stored::Check stored;
    // By earlier checks of the run: up to there this one goes over it again.
    Told told;
    // Of the last snapshot.
    uint64_t saved_batches = 0;
    absl::Time next_snapshot = absl::InfinitePast();
  };

  void Loop();
  // Advances the check of one run; true if more is to be read.
  bool Turn(const RunView& run);
  // Makes the check from the version of the set that the run names, or that it
  // began with, else from the newest, and goes on from its snapshot where there
  // is one.
  // `anew`: at the first batch.
  void Begin(const RunView& run, Active* active, bool anew = false);
  // The set that the run is checked against; while there is none, it waits.
  absl::StatusOr<InvariantSet> LoadSet(const RunView& run,
                                       const Active& active);
  bool IsWaiting(const std::string& run) const;
  // False: there is none that fits, which the log says.
  bool Resume(const RunView& run, const InvariantSet& set, Active* active);
  // Tells and saves what the check has found.
  void Tell(const RunView& run, Active* active);
  void AddSnapshot(const RunView& run, Active* active, WriteSet* writes);
  void SaveAll();
  void Fail(const RunView& run, const absl::Status& why, Active* active);
  void Finish(const RunView& run, Active* active);
  void Publish(const std::string& run, const v1::CheckProgress& progress);

  const Dependencies use_;
  std::map<std::string, Active> active_;  // by run; the worker's
  mutable absl::Mutex mutex_;
  std::set<std::string> due_ ABSL_GUARDED_BY(mutex_);
  // Runs that wait for a set, with its name.
  std::map<std::string, std::string> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> forgotten_ ABSL_GUARDED_BY(mutex_);  // still active_
  std::string at_ ABSL_GUARDED_BY(mutex_);  // run that the worker is at
  std::map<std::string, v1::CheckProgress> progress_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::thread thread_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_
