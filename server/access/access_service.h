// gRPC's side of tokens.
//
// Threads: gRPC calls on threads of its own, one for each open call.
#ifndef TRAINCHECK_SERVER_ACCESS_ACCESS_SERVICE_H_
#define TRAINCHECK_SERVER_ACCESS_ACCESS_SERVICE_H_

#include "proto/traincheck/v1/access.grpc.pb.h"
#include "server/access/gate_service.h"
#include "server/access/token_book.h"

namespace traincheck::server {

class AccessService final : public v1::Access::Service {
 public:
  // Both must outlive the service.
  AccessService(TokenBook* tokens, const Gate* gate)
      : tokens_(*tokens), gate_(*gate) {}

  grpc::Status CreateToken(grpc::ServerContext* context,
                           const v1::CreateTokenRequest* request,
                           v1::CreateTokenReply* response) override;
  grpc::Status ListTokens(grpc::ServerContext* context,
                          const v1::ListTokensRequest* request,
                          grpc::ServerWriter<v1::Token>* writer) override;
  grpc::Status RevokeToken(grpc::ServerContext* context,
                           const v1::RevokeTokenRequest* request,
                           v1::Token* response) override;

 private:
  TokenBook& tokens_;
  const Gate& gate_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_ACCESS_SERVICE_H_
