#include "server/runs/owner_use.h"

#include "absl/strings/str_cat.h"

namespace traincheck::server {

void OwnerUse::Subtract(const std::string& owner, uint64_t bytes) {
  const auto at = bytes_.find(owner);
  // An owner whose records are gone leaves no entry: the map has only those of
  // whom something is stored.
  if (at != bytes_.end() && (at->second -= bytes) == 0) bytes_.erase(at);
}

absl::Status OwnerUse::CheckRoom(const std::string& owner) const {
  const auto at = bytes_.find(owner);
  // The batch itself is not counted in, so an owner exceeds the limit by one
  // batch at most.
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
