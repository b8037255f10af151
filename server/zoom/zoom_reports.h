// What the processes of a run have recorded under the zoom that was made for an
// incident: read from the store on request, so that it is the same at any time
// and nothing more is stored.
//
// Threads: safe on any thread; a report is made on the caller's.
#ifndef TRAINCHECK_SERVER_ZOOM_ZOOM_REPORTS_H_
#define TRAINCHECK_SERVER_ZOOM_ZOOM_REPORTS_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/zoom.pb.h"
#include "server/checking/violation_board.h"
#include "server/plans/run_plans.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/store/store.h"

namespace traincheck::server {

class ZoomReports {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    const ViolationBoard* board;
    const RunPlans* plans;
    RunPins* pins;
  };
  using GoOn = std::function<bool()>;
  // May the caller know of this run?
  using Sees = std::function<bool(const std::string& run)>;

  explicit ZoomReports(const Dependencies& dependencies) : use_(dependencies) {}

  // Of the incident of this violation. NotFound for one that is not known to
  // the caller, Cancelled if `go_on` said no, DataLoss.
  [[nodiscard]] absl::StatusOr<v1::ZoomReport> Report(
      const std::string& violation, const Sees& sees, const GoOn& go_on) const;

 private:
  absl::Status Read(const v1::Violation& violation, const stored::Plan& plan,
                    const GoOn& go_on, v1::ZoomReport* report) const;

  const Dependencies use_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ZOOM_ZOOM_REPORTS_H_
