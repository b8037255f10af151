#include "server/runs/ended_run.h"

#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"

namespace traincheck::server {

absl::StatusOr<RunView> FindEndedRun(const Registry& registry,
                                     const std::string& id,
                                     const std::string& instead) {
  std::optional<RunView> run = registry.View(id);
  if (!run.has_value()) {
    return absl::NotFoundError(absl::StrCat(
        "there is no run \"", id, "\": traincheckctl runs list names all"));
  }
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
