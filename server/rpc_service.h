// The port: one gRPC server with all services.
//
// Threads: Start and Stop on one thread.
#ifndef TRAINCHECK_SERVER_RPC_SERVICE_H_
#define TRAINCHECK_SERVER_RPC_SERVICE_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/credentials.h"
#include "grpcpp/server.h"
#include "server/access/access_service.h"
#include "server/access/gate_service.h"
#include "server/comparing/comparison_service.h"
#include "server/control/control_service.h"
#include "server/control/feedback_service.h"
#include "server/ingest/ingest_service.h"
#include "server/zoom/zoom_service.h"

namespace traincheck::server {

// What gRPC may hold of what clients send: connections, calls (some 15 kB
// each) and messages that nobody has taken yet. It takes a message whole, of
// whatever size, before anybody sees it. Above this it breaks off what it has.
inline constexpr uint64_t kMaxWireBytes = 768 << 20;

class RpcServer {
 public:
  struct Services {
    IngestService* ingest;
    ControlService* control;
    FeedbackService* feedback;
    ComparisonService* comparison;
    ZoomService* zoom;
    AccessService* access;
  };

  struct Options {
    std::string listen;
    ServerFiles tls;
    uint64_t wire_bytes = kMaxWireBytes;
  };

  // Listens; port 0 takes a free one. `gate` says which calls reach the
  // services, which must outlive the server. Errors as CheckListenAddress;
  // Unavailable if the port cannot be had.
  [[nodiscard]] static absl::StatusOr<std::unique_ptr<RpcServer>> Start(
      const Options& options, const std::shared_ptr<Gate>& gate,
      const Services& services);

  // Where it listens, with the port that it got.
  const std::string& address() const { return address_; }

  // Accepts nothing more, ends all streams and calls and waits for that, at
  // most `patience`.
  void Stop(absl::Duration patience);

 private:
  explicit RpcServer(const Services& services) : services_(services) {}

  const Services services_;
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RPC_SERVICE_H_
