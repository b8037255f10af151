// The daemon's metrics, as one page for Prometheus. docs/metrics.md lists them;
// a test compares.
//
// Labels are few and bounded: states, grades, fates. Names of runs and
// experiments are told only where `by_run` asks for them, of runs that have not
// ended.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_METRICS_DAEMON_METRICS_H_
#define TRAINCHECK_SERVER_METRICS_DAEMON_METRICS_H_

#include <string>

#include "absl/time/time.h"
#include "server/alerting/alert_caller.h"
#include "server/checking/live_checks.h"
#include "server/checking/violation_board.h"
#include "server/jobs/inference_jobs.h"
#include "server/metrics/exposition.h"
#include "server/runs/registry.h"
#include "server/store/store.h"

namespace traincheck::server {

class DaemonMetrics {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    const LiveChecks* checks;
    const ViolationBoard* board;
    const InferenceJobs* jobs;
    const AlertCaller* caller;
    bool by_run = false;
  };

  explicit DaemonMetrics(const Dependencies& dependencies)
      : use_(dependencies), started_(absl::Now()) {}

  std::string Text() const;
  // Why nothing is acknowledged just now; OK: the daemon takes what comes.
  absl::Status Readiness() const { return use_.store->Health().error; }

 private:
  void AddProcess(Exposition* text) const;
  void AddStore(Exposition* text) const;
  void AddIngest(Exposition* text) const;
  void AddRuns(Exposition* text) const;
  void AddMissing(Exposition* text) const;
  void AddChecks(Exposition* text) const;
  void AddJobs(Exposition* text) const;
  void AddAlerts(Exposition* text) const;

  const Dependencies use_;
  const absl::Time started_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_DAEMON_METRICS_H_
