#include "server/access/sight.h"

#include <optional>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck::server {

bool Sight::SeesRun(const std::string& run) {
  if (caller_.is_admin()) return true;
  // Kept for the call, since a list asks once for each violation.
  const auto known = seen_.find(run);
  if (known != seen_.end()) return known->second;
  const std::optional<std::string> owner = registry_.OwnerOf(run);
  // It may begin yet, and be anybody's.
  if (!owner.has_value()) return true;
  return seen_[run] = caller_.Sees(*owner);
}

absl::Status Sight::CheckRun(const std::string& run) {
  if (SeesRun(run)) return absl::OkStatus();
  return absl::NotFoundError(
      absl::StrCat("there is no run ", QuotePrintable(run),
                   ": traincheckctl runs list names all"));
}

}  // namespace traincheck::server
