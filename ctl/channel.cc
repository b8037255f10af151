#include "ctl/channel.h"

#include <cstdlib>

#include "base/credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace traincheck::ctl {
namespace {

// From daemons that send a set in one message.
constexpr int kMaxMessageBytes = 64 << 20;
// gRPC's own backoff grows to two minutes: a watch would show nothing of a
// server that is back.
constexpr int kFirstBackoffMs = 100;
constexpr int kMaxBackoffMs = 1000;

}  // namespace

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeServerChannel(
    const std::string& address, const Keepalive& keepalive) {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  arguments.SetMaxSendMessageSize(kMaxMessageBytes);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kFirstBackoffMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxBackoffMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS,
                   static_cast<int>(keepalive.time.count()));
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS,
                   static_cast<int>(keepalive.timeout.count()));
  // 0: no limit. A watch or a check may be quiet for hours.
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  return MakeChannel(address, arguments, ClientFilesOf(std::getenv));
}

}  // namespace traincheck::ctl
