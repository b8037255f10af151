// Compares two stored runs on request (checker/compare). Nothing is stored.
//
// Both are read at once, process by process and as far as the other's next
// step, so that memory does not grow with the length of the runs.
//
// Threads: safe on any thread; a comparison works on the caller's.
#ifndef TRAINCHECK_SERVER_COMPARING_STORED_COMPARISON_H_
#define TRAINCHECK_SERVER_COMPARING_STORED_COMPARISON_H_

#include <functional>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/compare.pb.h"
#include "server/runs/registry.h"
#include "server/runs/run_pins.h"
#include "server/store/store.h"

namespace traincheck::server {

class StoredComparisons {
 public:
  // All must outlive the object.
  struct Dependencies {
    const Store* store;
    const Registry* registry;
    RunPins* pins;
  };
  // Told the part of both runs that has been read; false: give up.
  using Progress = std::function<bool(double fraction)>;

  explicit StoredComparisons(const Dependencies& dependencies)
      : use_(dependencies) {}

  // NotFound for an unknown run or attempt, FailedPrecondition for a run that
  // has not ended or whose records are deleted, Cancelled if `progress` gave
  // up, Unavailable if the last records of a run do not become durable.
  [[nodiscard]] absl::StatusOr<v1::CompareRunsResult> Compare(
      const v1::CompareRunsRequest& request, const Progress& progress) const;

 private:
  const Dependencies use_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_COMPARING_STORED_COMPARISON_H_
