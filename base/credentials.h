// The one place where channels and server ports get their credentials.
//
// Plain text is allowed on loopback addresses and unix sockets only; every
// other address is refused until TLS exists. An address is host:port,
// [ipv6]:port or unix:PATH.
//
// Threads: all functions are pure.
#ifndef TRAINCHECK_BASE_CREDENTIALS_H_
#define TRAINCHECK_BASE_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace traincheck {

// OK for loopback and unix addresses; InvalidArgument for text that is no
// address; PermissionDenied for every other address. The message names the
// address and what to do.
[[nodiscard]] absl::Status CheckAddress(absl::string_view address);

// A channel to the daemon. It connects lazily.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const grpc::ChannelArguments& arguments);

// Credentials for a port that the daemon listens on.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>>
MakeServerCredentials(const std::string& address);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_CREDENTIALS_H_
