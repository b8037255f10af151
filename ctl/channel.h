// The connection to a daemon, for client.h and delivery.h: how large messages
// may be, how soon a daemon that comes back is met, and how soon one that
// vanished is noticed.
//
// Threads: any.
#ifndef TRAINCHECK_CTL_CHANNEL_H_
#define TRAINCHECK_CTL_CHANNEL_H_

#include <chrono>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "grpcpp/channel.h"

namespace traincheck::ctl {

// A host that vanishes closes no connection: pings find out. While a call is
// open and nothing comes, one is sent after `time`; without an answer within
// `timeout` all open calls end as Unavailable.
struct Keepalive {
  std::chrono::milliseconds time{10'000};
  // A daemon whose machine is overloaded may take long to answer, and a check
  // that has gone on for an hour must not end for that.
  std::chrono::milliseconds timeout{20'000};
};

// Connects with the first call. Fails for an address that base/credentials
// refuses.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeServerChannel(
    const std::string& address, const Keepalive& keepalive = {});

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_CHANNEL_H_
