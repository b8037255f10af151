// Threads: safe.
#ifndef TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_
#define TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_

#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// A new folder of mode 0700; who asks removes it. Fails only where none can be
// made, which the message says.
[[nodiscard]] absl::StatusOr<std::string> MakeTemporaryFolder();

// All of the file; empty where it cannot be read.
std::string ReadWholeFile(const std::string& path);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_TEMPORARY_FOLDER_H_
