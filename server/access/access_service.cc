#include "server/access/access_service.h"

#include <string>

#include "base/logging.h"
#include "server/access/method_roles.h"
#include "server/status/status_for_service.h"

namespace traincheck::server {
namespace {

// For audits: by whom, and which token, but never its text.
void Log(const char* what, const v1::Token& token, const Caller& by) {
  spdlog::info("token is {} token={} role={} owner={} by={}", what, token.id(),
               RoleName(token.role()), token.owner(),
               by.token.empty() ? "socket" : by.token);
}

}  // namespace

// Only administrators reach these methods (method_roles.cc). The reply holds
// the token's text, which is kept nowhere and not shown again.
grpc::Status AccessService::CreateToken(grpc::ServerContext* context,
                                        const v1::CreateTokenRequest* request,
                                        v1::CreateTokenReply* response) {
  absl::StatusOr<v1::CreateTokenReply> reply =
      tokens_.CreateUntrusted(*request);
  if (!reply.ok()) return ToGrpc(reply.status());
  Log("made", reply->token(), gate_.CallerOf(*context));
  *response = *std::move(reply);
  return grpc::Status::OK;
}

// The list has neither texts nor hashes.
grpc::Status AccessService::ListTokens(grpc::ServerContext*,
                                       const v1::ListTokensRequest*,
                                       grpc::ServerWriter<v1::Token>* writer) {
  for (const v1::Token& token : tokens_.List()) {
    if (!writer->Write(token)) break;  // the client has left
  }
  return grpc::Status::OK;
}

// Streams and watchers that came with the token end by themselves
// (IngestService::Tick, ViolationWatch).
grpc::Status AccessService::RevokeToken(grpc::ServerContext* context,
                                        const v1::RevokeTokenRequest* request,
                                        v1::Token* response) {
  absl::StatusOr<v1::Token> revoked = tokens_.Revoke(request->id());
  if (!revoked.ok()) return ToGrpc(revoked.status());
  Log("revoked", *revoked, gate_.CallerOf(*context));
  *response = *std::move(revoked);
  return grpc::Status::OK;
}

}  // namespace traincheck::server
