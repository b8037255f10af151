#include "invariants/traincheck/trace_files.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

#include "absl/strings/match.h"

namespace traincheck {

namespace {

namespace fs = std::filesystem;

// TrainCheck's names: trace_API_* hold calls, trace_VAR_* and proxy_log.json
// hold variables. Other files of the folder are ignored.
bool IsTraceFile(const std::string& name) {
  return absl::StartsWith(name, "trace_") ||
         absl::StartsWith(name, "proxy_log.json");
}

}  // namespace

absl::StatusOr<std::vector<std::string>> TraceFilesIn(
    const std::string& folder) {
  std::error_code error;
  std::vector<std::string> names;
  for (fs::directory_iterator at(folder, error), end; !error && at != end;
       at.increment(error)) {
    const std::string name = at->path().filename().string();
    // What cannot be looked at counts as no file; an error of the folder itself
    // ends the loop.
    std::error_code ignored;
    if (IsTraceFile(name) && at->is_regular_file(ignored)) {
      names.push_back(name);
    }
  }
  // Also where the listing fails in the middle: a part of the files would be
  // another trace.
  if (error) {
    return absl::NotFoundError("cannot read the folder \"" + folder +
                               "\": " + error.message());
  }
  if (names.empty()) {
    return absl::NotFoundError("\"" + folder +
                               "\" holds no trace: neither trace_* nor "
                               "proxy_log.json");
  }
  // A folder lists its files in another order on each file system.
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace traincheck
