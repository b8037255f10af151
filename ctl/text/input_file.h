// Files that users name on the command line.
#ifndef TRAINCHECK_CTL_TEXT_INPUT_FILE_H_
#define TRAINCHECK_CTL_TEXT_INPUT_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// The name of a file that stands for stdin or stdout.
inline constexpr char kStandardStream[] = "-";

// All of it. NotFound names the file.
absl::StatusOr<std::string> ReadInputFile(const std::string& path);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_INPUT_FILE_H_
