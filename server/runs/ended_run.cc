#include "server/runs/ended_run.h"

#include <utility>

#include "absl/strings/str_cat.h"

namespace traincheck::server {

// Checks, comparisons and other readers of whole runs begin here. The answers
// to `not ended` and `deleted` differ, because only the first one is worth
// waiting for.
absl::StatusOr<RunView> FindEndedRun(const Registry& registry,
                                     const std::string& id,
                                     const std::string& instead) {
  absl::StatusOr<RunView> run = registry.View(id);
  if (!run.ok()) return run.status();
  if (!run->ended) {
    return absl::FailedPreconditionError(
        absl::StrCat("run ", id, " has not ended: ", instead));
  }
  if (run->records_deleted) {
    return absl::FailedPreconditionError(
        absl::StrCat("the records of run ", id, " were deleted by retention"));
  }
  return *std::move(run);
}

}  // namespace traincheck::server
