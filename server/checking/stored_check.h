// Checks a stored run against a set on request, by the code that checks runs
// while they train. Nothing is stored: who asks gets what was found.
//
// Threads: safe on any thread; a check works on the caller's.
#ifndef TRAINCHECK_SERVER_CHECKING_STORED_CHECK_H_
#define TRAINCHECK_SERVER_CHECKING_STORED_CHECK_H_

#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/sets/rule_policy.h"
#include "server/sets/set_catalog.h"
#include "server/store/store.h"

namespace traincheck::server {

class StoredChecks {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    const SetCatalog* sets;
    const RulePolicy* policy;
    RunPins* pins;
  };
  // Told the part of the run that has been read; false: give up.
  using Progress = std::function<bool(double fraction)>;

  explicit StoredChecks(const Dependencies& dependencies)
      : use_(dependencies) {}

  // Against the newest version of the set, as is decided for the run's owner
  // (rule_policy.h).
  // NotFound for an unknown run or set,
  // FailedPrecondition for a run that has not ended or whose records are
  // deleted, Cancelled if `progress` gave up, Aborted if the run changed
  // meanwhile, Unavailable if its last records do not become durable.
  [[nodiscard]] absl::StatusOr<v1::CheckResult> Check(
      const v1::CheckRunRequest& request, const Progress& progress) const;

 private:
  absl::StatusOr<RunView> FindRun(const std::string& id) const;

  const Dependencies use_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_CHECKING_STORED_CHECK_H_
