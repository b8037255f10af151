// After the training: waits until the server has everything of the run and has
// judged it.
//
// Threads: pure but for the functions it is given.
#ifndef TRAINCHECK_CTL_RUN_DRAIN_H_
#define TRAINCHECK_CTL_RUN_DRAIN_H_

#include <chrono>
#include <functional>
#include <optional>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

struct DrainDependencies {
  std::function<absl::StatusOr<v1::Run>()> get_run;
  // Monotonic.
  std::function<std::chrono::milliseconds()> now;
  // Sleeps; true: the user wants no more waiting.
  std::function<bool(std::chrono::milliseconds)> interrupted_within;
};

struct DrainOptions {
  std::chrono::milliseconds timeout;
  // The server answered before the training began; else one more refusal is
  // enough and nobody waits for a daemon that was never there.
  bool server_answered = true;
};

struct DrainResult {
  // The last state seen; none: the server never told of the run.
  std::optional<v1::Run> run;
  // Of the last call.
  absl::Status status;
  // The run has ended and everything is judged.
  bool finished = false;
};

DrainResult Drain(const DrainOptions& options,
                  const DrainDependencies& dependencies);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_DRAIN_H_
