#include "ctl/run/alert_command.h"

#include <sys/wait.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/shell_command.h"
#include "proto/alert_variables.h"

namespace traincheck::ctl {

// Called by ViolationPrinter, on the thread of the watch or on the main thread,
// each time with the printer's lock held.
absl::Status AlertCommand::Start(const v1::Violation& lead) {
  Reap();
  if (command_.empty()) return absl::OkStatus();
  if (started_ == kMaxAlertCommands) {
    return absl::ResourceExhaustedError(
        absl::StrCat("--on-alert was started ", started_,
                     " times and is not started any more in this run"));
  }
  // Counted before the start: a command that cannot be started is reported at
  // most so often, too.
  ++started_;
  const absl::StatusOr<pid_t> pid =
      StartShellCommand({command_, AlertVariables(lead)});
  if (!pid.ok()) {
    return absl::Status(pid.status().code(),
                        absl::StrCat("--on-alert: ", pid.status().message()));
  }
  running_.push_back(*pid);
  return absl::OkStatus();
}

// Nobody waits for the commands; without this each that ends stays as a zombie
// as long as the training.
void AlertCommand::Reap() {
  std::vector<pid_t> still;
  for (const pid_t pid : running_) {
    // 0: it is running. With an error there is nothing left to wait for.
    if (waitpid(pid, nullptr, WNOHANG) == 0) still.push_back(pid);
  }
  running_ = std::move(still);
}

}  // namespace traincheck::ctl
