// Which files of a folder are a trace.
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FILES_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck {

// Names within the folder, sorted: trace_* and proxy_log.json*. NotFound: no
// such folder, or none of them in it.
[[nodiscard]] absl::StatusOr<std::vector<std::string>> TraceFilesIn(
    const std::string& folder);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_TRACE_FILES_H_
