// Zooms in on an incident that is an alert: sends the run's processes, once for
// each incident, a plan that for some steps records in full what it is about.
// The agents keep to their budget, and go back to the plan before by
// themselves.
//
// What there is already when the daemon starts is looked at when it changes.
//
// Threads: Start and Stop on one thread, in this order.
#ifndef TRAINCHECK_SERVER_ZOOM_INCIDENT_ZOOMER_H_
#define TRAINCHECK_SERVER_ZOOM_INCIDENT_ZOOMER_H_

#include <atomic>
#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <thread>

#include "absl/status/status.h"
#include "server/checking/violation_board.h"
#include "server/feedback/violation_view.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"

namespace traincheck::server {

class IncidentZoomer {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Registry* registry;
    const ViolationBoard* board;
    const ViolationView* violations;
    RunPlans* plans;
    uint32_t steps = 0;  // that are to be recorded in full; 0: no zoom is made
  };

  explicit IncidentZoomer(const Dependencies& dependencies)
      : use_(dependencies) {}
  ~IncidentZoomer() { Stop(); }
  IncidentZoomer(const IncidentZoomer&) = delete;
  IncidentZoomer& operator=(const IncidentZoomer&) = delete;

  void Start();
  void Stop();

 private:
  struct OfRun {
    // Violations whose incident was zoomed in on, or need not be: one that goes
    // on changes with every step.
    std::set<std::string> settled;
    // An error stands in the way that will not pass: no zoom is made any more.
    bool given_up = false;
  };
  using Violations = ViolationView::Violations;

  void Loop();
  // Looks at what has changed since; an error leaves it for the next look.
  absl::Status Look();
  absl::Status LookAt(const std::string& run, const Violations& changed,
                      OfRun* of);
  absl::Status ZoomIn(const std::string& run, const Violations& incident);
  bool GoesOn(const std::string& run) const;

  const Dependencies use_;
  std::thread thread_;
  std::atomic<bool> stopping_ = false;
  // The thread's.
  uint64_t cursor_ = 0;                // revision
  std::map<std::string, OfRun> runs_;  // that go on
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ZOOM_INCIDENT_ZOOMER_H_
