// gRPC's side of who may call what: asks for a token before a call reaches any
// service, and says to the services whose it was.
//
// On a unix socket whoever could open it is the daemon's user, and tokens are
// not looked at.
//
// Threads: safe on any thread.
#ifndef TRAINCHECK_SERVER_ACCESS_GATE_SERVICE_H_
#define TRAINCHECK_SERVER_ACCESS_GATE_SERVICE_H_

#include <atomic>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/line_limit.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/server_context.h"
#include "server/access/caller.h"
#include "server/access/token_book.h"

namespace traincheck::server {

class Gate final : public grpc::AuthMetadataProcessor {
 public:
  // `tokens` must outlive the gate; null: all callers are the daemon's user.
  explicit Gate(const TokenBook* tokens) : tokens_(tokens) {}

  // Calls before it are refused, Unavailable: clients come back.
  void Open() { open_ = true; }

  // Who makes the call that has passed; nobody if its token was revoked since.
  Caller CallerOf(const grpc::ServerContextBase& context) const;
  // May what the caller has open go on?
  [[nodiscard]] absl::Status CheckStillValid(const Caller& caller) const;
  // When that ends by itself.
  absl::Time ExpiryOf(const Caller& caller) const;

  // gRPC's side.
  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata,
                       grpc::AuthContext* context, OutputMetadata* consumed,
                       OutputMetadata* response) override;

 private:
  absl::StatusOr<Caller> Find(
      const std::multimap<grpc::string_ref, grpc::string_ref>& metadata) const;

  const TokenBook* const tokens_;
  std::atomic<bool> open_ = false;
  // Anybody can make these.
  LineLimit refusals_{20, absl::Seconds(10)};
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_ACCESS_GATE_SERVICE_H_
