// The capture plans of runs: which versions there were, and the newest for
// whoever streams for the run. A run that is checked gets the plan of its set
// when its check begins; somebody may give it another one by hand.
//
// Each version is stored before anybody hears of it, so that after a restart
// the same number still means the same plan. If the disk takes it only after
// its change was answered with Unavailable, it is heard of then.
//
// The store must be closed before the object is destroyed.
//
// Threads: safe on any thread. Listeners are called without the lock, on the
// thread that subscribes or on the store's commit thread, and must be short.
#ifndef TRAINCHECK_SERVER_PLANS_RUN_PLANS_H_
#define TRAINCHECK_SERVER_PLANS_RUN_PLANS_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "invariants/rules/invariant.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/runs/registry.h"
#include "server/store/store.h"
#include "server/store/stored.pb.h"

namespace traincheck::server {

class RunPlans {
 public:
  // All must outlive the object.
  struct Dependencies {
    Store* store;
    const Registry* registry;
    std::function<absl::Time()> now = absl::Now;
  };
  using Listener = std::function<void(const v1::PlanChange&)>;

  explicit RunPlans(Dependencies dependencies)
      : use_(std::move(dependencies)) {}
  RunPlans(const RunPlans&) = delete;
  RunPlans& operator=(const RunPlans&) = delete;

  // One listener of one run; ends with this object. Must not outlive RunPlans.
  class Subscription {
   public:
    Subscription(RunPlans* plans, uint64_t run, uint64_t number)
        : plans_(*plans), run_(run), number_(number) {}
    ~Subscription() { plans_.Unsubscribe(run_, number_); }
    Subscription(const Subscription&) = delete;
    Subscription& operator=(const Subscription&) = delete;

   private:
    RunPlans& plans_;
    const uint64_t run_;
    const uint64_t number_;
  };

  // Tells the listener of the plan that there is and of each that comes;
  // perhaps of an older one after a newer one. Null if there is no such run.
  std::unique_ptr<Subscription> Subscribe(const std::string& run,
                                          Listener listener);

  // The run is being checked against this set from now on.
  void OnCheckBegins(const RunView& run, const InvariantSet& set);

  // Gives the run another plan. NotFound, FailedPrecondition for a run that
  // has ended, InvalidArgument with what is wrong and where,
  // ResourceExhausted after too many changes.
  [[nodiscard]] absl::StatusOr<v1::RunPlan> ChangeUntrusted(
      const std::string& run, const std::string& json);

  // For an incident of the run: the plan that holds and, for some steps, what
  // `json` adds as its zoom. Nothing if there was one for a violation of this
  // incident, if the run has ended or has no plan of the daemon's, or after
  // kMaxZooms of them.
  [[nodiscard]] absl::Status ZoomIn(const std::string& run, stored::Zoom zoom,
                                    const nlohmann::json& json);
  // Of one run: each zooms once, for all its incidents so often.
  static constexpr int kMaxZooms = 4;

  // The versions that zoom in, ascending. Empty for an unknown run.
  [[nodiscard]] absl::StatusOr<std::vector<stored::Plan>> Zooms(
      const std::string& run) const;

  // NotFound.
  [[nodiscard]] absl::StatusOr<v1::RunPlan> Show(const std::string& run) const;

 private:
  // What streams of one run hear.
  struct Channel {
    std::map<uint64_t, Listener> listeners;
    // The newest; version 0: none.
    v1::PlanChange newest;
  };

  // All versions that the store has, ascending.
  absl::StatusOr<std::vector<stored::Plan>> Read(uint64_t run) const;
  // The same, and behind them those that it is to have.
  absl::StatusOr<std::vector<stored::Plan>> ReadWithQueued(uint64_t run)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  // `before`: what ReadWithQueued gave.
  absl::Status Add(const RunView& run, const std::vector<stored::Plan>& before,
                   stored::Plan plan, const nlohmann::json& json)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(changing_);
  void OnDurable(uint64_t run, const std::string& id, const stored::Plan& plan);
  void Publish(uint64_t run, const v1::PlanChange& change);
  void Unsubscribe(uint64_t run, uint64_t number);

  const Dependencies use_;
  absl::Mutex changing_;  // one change at a time, for the numbers
  absl::Mutex mutex_;
  std::map<uint64_t, Channel> channels_ ABSL_GUARDED_BY(mutex_);  // by run
  // On their way to the store, by run, ascending.
  std::map<uint64_t, std::vector<stored::Plan>> queued_ ABSL_GUARDED_BY(mutex_);
  uint64_t next_listener_ ABSL_GUARDED_BY(mutex_) = 1;
};

// The plan of a set, as a run that begins would get it.
v1::SetPlan PlanOfSet(const InvariantSet& set);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_PLANS_RUN_PLANS_H_
