// Where the parts of an installation lie: in one folder with this program.
#ifndef TRAINCHECK_CTL_RUN_INSTALLED_FILE_H_
#define TRAINCHECK_CTL_RUN_INSTALLED_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// The path of a file of the agent: in TRAINCHECK_AGENT_DIR if that is set, else
// beside this program. NotFound names the place that was looked at.
[[nodiscard]] absl::StatusOr<std::string> FindAgentFile(
    const std::string& name);

// The path of another program of the installation: beside this one.
[[nodiscard]] absl::StatusOr<std::string> FindBesideProgram(
    const std::string& name);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_INSTALLED_FILE_H_
