// Starts the operator's command (--on-alert) once for each incident that is an
// alert, so that somebody is called whoever started the training.
//
// Once means: never twice, also if the daemon is killed. That the command is to
// be started is in the store before it is; a daemon that dies in between has
// called nobody for that incident, and the next one does not make up for it; a
// daemon whose disk is slow starts the command once the store has it. An
// incident is known again by the violations that were in it, whichever leads it
// later.
//
// Only what changes is looked at, from where the last daemon with a command had
// stopped looking: neither a command that is given for the first time nor a
// silence that ends calls anybody for what is over.
//
// Threads: Start and Stop on one thread, in this order; Calls on any.
#ifndef TRAINCHECK_SERVER_ALERTING_ALERT_CALLER_H_
#define TRAINCHECK_SERVER_ALERTING_ALERT_CALLER_H_

#include <sys/types.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "proto/traincheck/v1/feedback.pb.h"
#include "server/checking/violation_board.h"
#include "server/feedback/violation_view.h"
#include "server/runs/registry.h"
#include "server/store/store.h"

namespace traincheck::server {

struct AlertCommandOptions {
  std::string command;  // for /bin/sh; "": nobody is called
  // Starts in any hour; further incidents are held back for good.
  uint32_t per_hour = 10;
  // What runs longer is killed, with all that it started.
  absl::Duration patience = absl::Minutes(1);
};

class AlertCaller {
 public:
  // All must outlive the object.
  struct Dependencies {
    Store* store;
    const Registry* registry;
    const ViolationBoard* board;
    const ViolationView* violations;
  };

  // Reads whom earlier daemons have called. DataLoss.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<AlertCaller>> Load(
      const Dependencies& dependencies, const AlertCommandOptions& options);
  ~AlertCaller() { Stop(); }
  AlertCaller(const AlertCaller&) = delete;
  AlertCaller& operator=(const AlertCaller&) = delete;

  void Start();
  // Commands at work go on.
  void Stop();

  v1::AlertCalls Calls() const;

 private:
  // That somebody is to be called is on its way to the store.
  struct Queued {
    uint64_t run;
    v1::Violation lead;
    std::vector<std::string> violations;  // of the incident
    bool held_back;
    std::shared_ptr<const std::atomic<bool>> durable;
  };
  struct Running {
    pid_t pid;
    std::string incident;
    absl::Time kill_at;
  };

  AlertCaller(const Dependencies& dependencies,
              const AlertCommandOptions& options)
      : use_(dependencies), options_(options) {}
  absl::Status ReadCalls();
  absl::Status ReadCursor();
  void MoveCursor(uint64_t revision, WriteSet* writes);

  void Loop();
  // Looks at what has changed since; an error leaves it for the next look.
  absl::Status Look();
  absl::Status LookAt(const std::string& run,
                      const ViolationView::Violations& changed);
  // Says once that nobody is called for the run as long as it cannot be read.
  void SayWhetherRead(const std::string& run, const absl::Status& looked);
  // That were in an incident for which somebody was called, or held back, or is
  // to be.
  absl::StatusOr<std::set<std::string>> ViolationsCalledFor(uint64_t run) const;
  absl::Status Call(uint64_t run, const v1::Violation& lead,
                    const std::vector<std::string>& incident);
  // Those that the store has by now.
  void CallQueued();
  bool HasRoomInHour(absl::Time now);
  void StartCommand(const v1::Violation& lead);
  // Takes leave of commands that have ended, and ends those that hang.
  void Reap();
  void Fail(const std::string& incident, const std::string& how);

  const Dependencies use_;
  const AlertCommandOptions options_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  // The thread's, once there is one.
  uint64_t cursor_ = 0;               // revision
  std::deque<absl::Time> last_hour_;  // starts
  std::set<std::string> unreadable_;  // runs
  std::deque<Queued> queued_;
  std::vector<Running> running_;

  mutable absl::Mutex mutex_;
  v1::AlertCalls calls_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ALERTING_ALERT_CALLER_H_
