// Names of new runs: <experiment or program>-<UTC yyyymmdd-hhmmss>-<12 hex>.
#ifndef TRAINCHECK_CTL_TEXT_RUN_ID_H_
#define TRAINCHECK_CTL_TEXT_RUN_ID_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace traincheck::ctl {

// What a command line trains: the first *.py argument's stem, else the module
// after -m, else the program's own name.
std::string ProgramName(const std::vector<std::string>& command);

// `name` is cut to 64 characters; what CheckRunId would refuse becomes "_".
// The lower 48 bits of `random` count.
std::string NewRunId(const std::string& name, uint64_t now_unix_ns,
                     uint64_t random);

// An id given by hand: 1 to 128 of the characters A-Z a-z 0-9 . _ : -,
// the first a letter or digit.
[[nodiscard]] absl::Status CheckRunId(const std::string& id);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_TEXT_RUN_ID_H_
