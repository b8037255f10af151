// Checks every run that names a set, while it runs and after a restart. One
// thread reads from the store by cursor; ingest only wakes it, so that a slow
// check never slows ingest. It looks at one run after the other (CheckQueue)
// and keeps what it knows of each (LiveCheck) until its check has finished and
// the store has the result; the state of an unfinished check is saved at Stop
// too.
//
// Threads: safe on any thread, except Start and Stop, which one owner calls
// in this order. Wake is short and may be called from the store's commit
// thread.
#ifndef TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_
#define TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>

#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/check_queue.h"
#include "server/checking/live_check.h"
#include "server/checking/violation_board.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

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
  void Wake(const std::string& run) { queue_.Wake(run); }

  // A set of that name was saved: runs that wait for it are checked.
  void OnSet(const std::string& name) { queue_.OnSet(name); }

  // Returns when nothing of the run's check is in memory or on its way to the
  // store. REQUIRES: the registry does not show the run any more.
  void Forget(const std::string& run) { queue_.Forget(run); }

  // Fills run->check of a run that names a set.
  void AddProgress(v1::Run* run) const;

  // Of runs that are to be looked at or whose result is not settled.
  size_t ChecksInMemory() const { return queue_.RunsInMemory(); }

  // Stored batches that checks have yet to read.
  uint64_t BatchesBehind() const { return queue_.BatchesBehind(); }

  // nullopt: the run names no set, or was not looked at yet.
  std::optional<v1::CheckProgress> Progress(const std::string& run) const;

 private:
  void Loop();
  enum class Next {
    kReadOn,    // more is to be read
    kRest,      // until something comes
    kTryAgain,  // the store cannot be read just now
  };
  // Advances the check of one run. `processes`: how many it has looked at.
  Next Turn(const std::string& id, size_t* processes);
  // Another number under an id is another run, whose check has its own life.
  LiveCheck& CheckOf(const RunView& run);
  void Publish(const std::string& run, const v1::CheckProgress& progress);
  // Its check is settled.
  void Drop(const std::string& run);
  void SaveAll();

  const Dependencies use_;
  CheckQueue queue_;
  std::map<std::string, std::unique_ptr<LiveCheck>> checks_;  // the worker's
  std::thread thread_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_LIVE_CHECKS_H_
