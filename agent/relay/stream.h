// One gRPC stream to the daemon, seen from the relay's loop: nothing here
// waits for the server. What came is fetched by TakeNews; `wake` says when to
// look. A server that hangs leaves writable() false and nothing else.
//
// Owned by the Delivery. Threads: one (the loop), but `wake` is called on
// gRPC's threads, also after the destructor, until the call has ended.
#ifndef TRAINCHECK_AGENT_RELAY_STREAM_H_
#define TRAINCHECK_AGENT_RELAY_STREAM_H_

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/credentials.h"
#include "proto/traincheck/v1/ingest.pb.h"

namespace grpc {
class Channel;
}  // namespace grpc

namespace traincheck::agent {

// A channel with the relay's timeouts. It connects lazily and again and again.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeRelayChannel(
    const std::string& address, const ClientFiles& files);

class IngestStream {
 public:
  struct News {
    std::optional<v1::Welcome> welcome;
    // The latest; the cursor only grows.
    std::optional<v1::Acknowledged> acknowledged;
    // The latest.
    std::optional<v1::PlanChange> plan;
    // Set when the stream has ended, OK or not.
    std::optional<absl::Status> ended;
  };

  // Opens the stream and sends the hello.
  IngestStream(const std::shared_ptr<grpc::Channel>& channel,
               const v1::Hello& hello, std::function<void()> wake);
  // Cancels the call if it has not ended.
  ~IngestStream();
  IngestStream(const IngestStream&) = delete;
  IngestStream& operator=(const IngestStream&) = delete;

  // What came since the last call.
  News TakeNews();

  // Can a message be sent now? One is on its way at a time.
  bool writable() const;
  // REQUIRES: writable().
  void Send(v1::IngestRequest request);

 private:
  class Call;
  const std::shared_ptr<Call> call_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_STREAM_H_
