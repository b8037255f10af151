// The preloaded half of the agent: where it lies and whether this system's
// loader takes it.
#ifndef TRAINCHECK_CTL_RUN_AGENT_LIBRARY_H_
#define TRAINCHECK_CTL_RUN_AGENT_LIBRARY_H_

#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// The path of libtraincheck_agent.so: in TRAINCHECK_AGENT_DIR if that is set,
// else beside this program. NotFound names the place that was looked at.
[[nodiscard]] absl::StatusOr<std::string> FindAgentLibrary();

// Preloads the library into /bin/true. A library that the loader refuses, or
// that needs symbols which this system lacks, would disturb or kill every
// program of the training.
[[nodiscard]] absl::Status TryPreload(const std::string& library);

// Both: a library that may be preloaded.
[[nodiscard]] absl::StatusOr<std::string> UsableAgentLibrary();

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_AGENT_LIBRARY_H_
