#include "server/access/gate_service.h"

#include <string>
#include <string_view>

#include "absl/time/clock.h"
#include "base/logging.h"
#include "base/printable_text.h"
#include "server/access/method_roles.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {
namespace {

using Metadata = std::multimap<grpc::string_ref, grpc::string_ref>;

constexpr std::string_view kBearer = "Bearer ";

// Of several values the first one counts.
std::string_view Value(const Metadata& metadata, const char* key) {
  const auto at = metadata.find(key);
  if (at == metadata.end()) return "";
  return {at->second.data(), at->second.size()};
}

}  // namespace

absl::StatusOr<Caller> Gate::Find(const Metadata& metadata) const {
  // On a socket whoever connects is the daemon's user, so tokens are not looked
  // at.
  if (tokens_ == nullptr) return Caller{v1::ROLE_ADMIN, "", ""};
  const std::string_view value = Value(metadata, "authorization");
  if (value.substr(0, kBearer.size()) != kBearer) {
    return absl::UnauthenticatedError(
        "this daemon wants a token: name the file with yours in "
        "TRAINCHECK_TOKEN_FILE or with --token-file. An administrator makes "
        "one (traincheckctl token create); the user who started the daemon "
        "needs none on its host");
  }
  return tokens_->Find(value.substr(kBearer.size()));
}

Caller Gate::CallerOf(const grpc::ServerContextBase& context) const {
  // Found again, and not handed over by Process, which may have passed the call
  // a moment before its token was revoked.
  return Find(context.client_metadata()).value_or(Caller());
}

absl::Status Gate::CheckStillValid(const Caller& caller) const {
  return tokens_ == nullptr ? absl::OkStatus()
                            : tokens_->CheckStillValid(caller);
}

absl::Time Gate::ExpiryOf(const Caller& caller) const {
  return tokens_ == nullptr ? absl::InfiniteFuture()
                            : tokens_->ExpiryOf(caller);
}

grpc::Status Gate::Process(const InputMetadata& metadata, grpc::AuthContext*,
                           OutputMetadata*, OutputMetadata*) {
  // The port is open before the token file of the daemon's user is written. A
  // client that finds none would take a refusal for the last word, and comes
  // back after this one.
  if (!open_) {
    return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                        "traincheckd is starting");
  }
  const std::string_view method = Value(metadata, ":path");
  const absl::StatusOr<Caller> caller = Find(metadata);
  const absl::Status status =
      caller.ok() ? CheckRole(caller->role, method) : caller.status();
  // Anybody can cause these lines, so they are limited.
  if (!status.ok() && refusals_.Allows(absl::Now())) {
    spdlog::warn("call refused method={} token={} owner={} message={}",
                 QuotePrintable(std::string(method)),
                 caller.ok() ? caller->token : "",
                 caller.ok() ? caller->owner : "",
                 QuotePrintable(std::string(status.message())));
  }
  return ToGrpc(status);
}

}  // namespace traincheck::server
