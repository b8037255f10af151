// Runs a program to its end and keeps what it says.
#ifndef TRAINCHECK_CTL_DOCTOR_TRIAL_H_
#define TRAINCHECK_CTL_DOCTOR_TRIAL_H_

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

struct TrialResult {
  int code = 0;  // 128 + n for a death by signal n
  std::string out;
  std::string err;
};

// `command[0]` is looked up in PATH; `environment` holds "NAME=VALUE".
// NotFound: it cannot be started. DeadlineExceeded: it was killed.
[[nodiscard]] absl::StatusOr<TrialResult> RunTrial(
    const std::vector<std::string>& command,
    const std::vector<std::string>& environment, std::chrono::seconds limit);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_DOCTOR_TRIAL_H_
