// A run whose records somebody wants to read to their end.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_RUNS_ENDED_RUN_H_
#define TRAINCHECK_SERVER_RUNS_ENDED_RUN_H_

#include <string>

#include "absl/status/statusor.h"
#include "server/runs/registry.h"

namespace traincheck::server {

// NotFound for an unknown run; FailedPrecondition for one that has not ended,
// saying `instead`, and for one whose records are deleted. The caller holds a
// pin (run_pins.h).
[[nodiscard]] absl::StatusOr<RunView> FindEndedRun(const Registry& registry,
                                                   const std::string& id,
                                                   const std::string& instead);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_ENDED_RUN_H_
