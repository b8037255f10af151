#include "server/runs/owner_use.h"

#include "absl/strings/str_cat.h"

namespace traincheck::server {

void OwnerUse::Subtract(const std::string& owner, uint64_t bytes) {
  const auto at = bytes_.find(owner);
  if (at != bytes_.end() && (at->second -= bytes) == 0) bytes_.erase(at);
}

absl::Status OwnerUse::CheckRoom(const std::string& owner) const {
  const auto at = bytes_.find(owner);
  if (owner.empty() || at == bytes_.end() || at->second < limit_) {
    return absl::OkStatus();
  }
  return absl::PermissionDeniedError(absl::StrCat(
      "the runs of owner ", owner, " take ", at->second >> 20,
      " MiB, and an owner has ", limit_ >> 20,
      " MiB here (traincheckd --owner-bytes): delete some (traincheckctl runs "
      "delete) or release kept ones (runs keep --off)"));
}

}  // namespace traincheck::server
