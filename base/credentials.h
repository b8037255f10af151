// The one place where channels and server ports get their credentials.
//
// An address is host:port, [ipv6]:port or unix:PATH. Unix sockets and, unless
// files of TLS are named, loopback carry plain text; every other address is
// spoken to with TLS alone, and there is no switch that changes that. The
// server shows a certificate of an authority that its clients pin; a client
// shows who it is by a token in each call.
//
// Threads: all functions are pure over the file system.
#ifndef TRAINCHECK_BASE_CREDENTIALS_H_
#define TRAINCHECK_BASE_CREDENTIALS_H_

#include <functional>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "grpcpp/channel.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/server_credentials.h"
#include "grpcpp/support/channel_arguments.h"

namespace traincheck {

enum class AddressKind { kSocket, kLoopback, kNetwork };

// InvalidArgument for text that is not an address.
[[nodiscard]] absl::StatusOr<AddressKind> KindOfAddress(
    absl::string_view address);
// The port of a host:port; "" of a socket.
std::string PortOf(const std::string& address);

// Names of files; empty: none.
struct ClientFiles {
  // Certificate of the authority that has to have signed the server's: TLS is
  // spoken to every address but sockets.
  std::string tls_ca;
  // Of mode 0600; read for each call, so that a new token needs no restart.
  // Without it a client on loopback uses what the daemon of the same user has
  // left there (runtime_folder.h).
  std::string token;
};
// TRAINCHECK_TLS_CA and TRAINCHECK_TOKEN_FILE; nullptr: not set.
ClientFiles ClientFilesOf(
    const std::function<const char*(const char*)>& get_env);

struct ServerFiles {
  // With both, TLS is spoken to every client but those of sockets.
  std::string tls_certificate;
  std::string tls_key;
};

// OK if a client can speak to the address; InvalidArgument; PermissionDenied
// for one beyond loopback without an authority, and for the default socket if
// its folder is another user's; errors of the authority's file. The message
// names the address or the file and what to do.
[[nodiscard]] absl::Status CheckAddress(absl::string_view address,
                                        const ClientFiles& files = {});
// The same for a server that would listen there. Errors of the files too:
// missing, readable by others, expired, or not one pair.
[[nodiscard]] absl::Status CheckListenAddress(absl::string_view address,
                                              const ServerFiles& files = {});

// A channel to the daemon. It connects lazily: an authority or a token that
// cannot be read fails the calls, Unavailable, until it can be.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const grpc::ChannelArguments& arguments,
    const ClientFiles& files = {});

// Credentials for a port that the daemon listens on. Certificate and key are
// read again when they change. `gate` may refuse calls before anybody sees
// them; none: all are let in.
[[nodiscard]] absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>>
MakeServerCredentials(
    const std::string& address, const ServerFiles& files = {},
    const std::shared_ptr<grpc::AuthMetadataProcessor>& gate = nullptr);

}  // namespace traincheck

#endif  // TRAINCHECK_BASE_CREDENTIALS_H_
