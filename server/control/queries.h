// What control answers, put together from the daemon's parts, without
// transport. Changes nothing.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_CONTROL_QUERIES_H_
#define TRAINCHECK_SERVER_CONTROL_QUERIES_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/checking/live_checks.h"
#include "server/feedback/violation_view.h"
#include "server/runs/registry.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class Queries {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    const LiveChecks* checks;
    const ViolationView* violations;
    const SetCatalog* sets;
    std::function<absl::Time()> now = absl::Now;
  };

  explicit Queries(Dependencies dependencies);

  v1::ServerStatus Status() const;

  // Errors name what does not exist.
  [[nodiscard]] absl::StatusOr<v1::Run> Run(const std::string& id) const;
  // False for a run that is not known: it may begin yet.
  bool HasEnded(const std::string& run) const;
  // Has the run ended, and is it checked to its end?
  bool IsOver(const std::string& run) const;

  // By time of first sight.
  [[nodiscard]] absl::StatusOr<std::vector<v1::Violation>> Violations(
      const std::string& run) const;

  // The capture plan of a set, NAME or NAME@VERSION.
  [[nodiscard]] absl::StatusOr<v1::SetPlan> SetPlan(
      const std::string& set) const;

 private:
  const Dependencies use_;
  const absl::Time started_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CONTROL_QUERIES_H_
