// traincheck-relay as a helper of this program: it alone can read and deliver
// spool files.
#ifndef TRAINCHECK_CTL_RUN_RELAY_PROGRAM_H_
#define TRAINCHECK_CTL_RUN_RELAY_PROGRAM_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// The path of traincheck-relay: in TRAINCHECK_AGENT_DIR if that is set, else
// beside this program. NotFound names the place that was looked at.
[[nodiscard]] absl::StatusOr<std::string> FindRelayProgram();

struct ProgramResult {
  std::string out;
  int code = 0;  // 128 + n for a death by signal n
};

// Runs a program to its end with further variables "NAME=value"; its stderr is
// this program's. FailedPrecondition: it cannot be started.
[[nodiscard]] absl::StatusOr<ProgramResult> RunProgram(
    std::vector<std::string> command,
    const std::vector<std::string>& variables);

// The folder in which TRAINCHECK_SPOOL_DIR, or a file of settings, has relays
// spool; "": none is named. InvalidArgument: such a file is wrong.
[[nodiscard]] absl::StatusOr<std::string> SpoolSetting();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_RELAY_PROGRAM_H_
