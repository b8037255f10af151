// Which run the worker of the live checks looks at next, which runs wait for a
// set, and how far the check of each is, as clients see it. Knows nothing of
// the checks themselves.
//
// Threads: safe on any thread; AwaitDue, Rest, WaitForSet, StopWaiting, Publish
// and Drop are the one worker's.
#ifndef TRAINCHECK_SERVER_CHECKING_CHECK_QUEUE_H_
#define TRAINCHECK_SERVER_CHECKING_CHECK_QUEUE_H_

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::server {

class CheckQueue {
 public:
  struct Due {
    std::string run;
    // Since the last one: what the worker still has of them is to go before it
    // looks at `run`, which may be another one of the same id.
    std::set<std::string> forgotten;
  };

  CheckQueue() = default;
  CheckQueue(const CheckQueue&) = delete;
  CheckQueue& operator=(const CheckQueue&) = delete;

  // Makes the run due, also while the worker is at it. Short.
  void Wake(const std::string& run);
  // Makes it due once nothing else is.
  void WakeLater(const std::string& run);
  // Makes the runs due that wait for a set of that name, among others.
  void OnSet(const std::string& name);
  // Returns when the worker is not at the run and nothing of it is left here.
  void Forget(const std::string& run);
  // From now on nothing is due.
  void Stop();

  // As published; caught up is a run that is not due, and finished only then.
  // nullopt: nothing was published, or it was dropped since.
  std::optional<v1::CheckProgress> Progress(const std::string& run) const;
  // Is the worker still to look at the run, or looking?
  bool IsAhead(const std::string& run) const;

  // The worker has left the run that it was at; returns the next one that is
  // due, once there is one. nullopt: stopped.
  std::optional<Due> AwaitDue();

  // The worker is not given the run again before so much time has passed,
  // however often it is woken: what comes meanwhile is read in one turn.
  void Rest(const std::string& run, absl::Duration time);

  // To be called before looking for the sets, so that one that comes meanwhile
  // is not missed.
  void WaitForSets(const std::string& run, std::set<std::string> names);
  void StopWaiting(const std::string& run);
  bool IsWaiting(const std::string& run) const;

  void Publish(const std::string& run, const v1::CheckProgress& progress);
  // What was published of the run is in the store, and nothing is to come.
  void Drop(const std::string& run);

  // Runs of which something is published, or that are still to be looked at.
  size_t RunsInMemory() const;

  // How many stored batches of the run its check has yet to read.
  void SetBehind(const std::string& run, uint64_t batches);
  // The same of all runs.
  uint64_t BatchesBehind() const;

 private:
  bool HasNext() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void WakeRested() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Returns when a run may be given to the worker.
  void AwaitNext() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // The next of `due_` that does not rest; "" if there is none.
  std::string NextDue() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  std::set<std::string> due_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> due_later_ ABSL_GUARDED_BY(mutex_);
  // Runs that rest, and until when: by a clock that nobody sets.
  std::map<std::string, std::chrono::steady_clock::time_point> resting_
      ABSL_GUARDED_BY(mutex_);
  // Runs that wait for sets, with their names.
  std::map<std::string, std::set<std::string>> waiting_ ABSL_GUARDED_BY(mutex_);
  std::set<std::string> forgotten_ ABSL_GUARDED_BY(mutex_);
  std::string at_ ABSL_GUARDED_BY(mutex_);    // run that the worker is at
  std::string last_ ABSL_GUARDED_BY(mutex_);  // run that it was given last
  std::map<std::string, v1::CheckProgress> progress_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, uint64_t> behind_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_CHECK_QUEUE_H_
