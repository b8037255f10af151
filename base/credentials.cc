#include "base/credentials.h"

#include <arpa/inet.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <map>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "absl/time/clock.h"
#include "base/certificates.h"
#include "base/private_file.h"
#include "base/runtime_folder.h"
#include "grpc/grpc_security_constants.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace traincheck {
namespace {

namespace experimental = grpc::experimental;

// How soon a changed file of TLS is used.
constexpr unsigned kWatchSeconds = 1;

// The addresses that gRPC takes for local. The rest of 127.0.0.0/8 is not among
// them, so its LocalCredentials would refuse it.
bool IsLoopback(const std::string& host) {
  if (host == "localhost" || host == "127.0.0.1") return true;
  in6_addr v6;
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 &&
         IN6_IS_ADDR_LOOPBACK(&v6);
}

absl::Status NotAnAddress(absl::string_view address) {
  return absl::InvalidArgumentError(
      absl::StrCat("\"", address,
                   "\" is not an address: write HOST:PORT, "
                   "[IPV6]:PORT or unix:PATH"));
}

absl::StatusOr<std::string> ReadFile(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file) return absl::ErrnoToStatus(errno, path);
  return std::string(std::istreambuf_iterator<char>(file), {});
}

absl::Status Named(const std::string& path, const absl::Status& status) {
  return absl::Status(status.code(),
                      absl::StrCat(path, ": ", status.message()));
}

// Checked when the daemon starts, since gRPC itself only fails the handshakes
// later.
absl::Status CheckServerFiles(const ServerFiles& files) {
  if (files.tls_certificate.empty() || files.tls_key.empty()) {
    return absl::InvalidArgumentError(
        "TLS needs both a certificate and its key: --tls-cert and --tls-key");
  }
  const absl::StatusOr<std::string> key = ReadPrivateFile(files.tls_key);
  if (!key.ok()) return key.status();
  const absl::StatusOr<std::string> certificate =
      ReadFile(files.tls_certificate);
  if (!certificate.ok()) return certificate.status();
  const absl::Status pair = CheckServerPair({*key, *certificate}, absl::Now());
  return pair.ok() ? pair : Named(files.tls_certificate, pair);
}

bool HasTls(const ServerFiles& files) {
  return !files.tls_certificate.empty() || !files.tls_key.empty();
}

// Parsed here, so that a file without a certificate is reported under its name.
absl::Status CheckAuthority(const std::string& path) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (!text.ok()) return text.status();
  const absl::Status parsed = ReadCertificate(*text).status();
  return parsed.ok() ? parsed : Named(path, parsed);
}

// Puts the token of a file into each call.
class TokenOfFile final : public grpc::MetadataCredentialsPlugin {
 public:
  // `must_exist`: else calls go out without one where there is no file.
  TokenOfFile(std::string path, bool must_exist)
      : path_(std::move(path)), must_exist_(must_exist) {}

  // gRPC then calls GetMetadata on a thread of its own: the file may lie on a
  // file system that hangs.
  bool IsBlocking() const override { return true; }

  grpc::Status GetMetadata(
      grpc::string_ref, grpc::string_ref, const grpc::AuthContext&,
      std::multimap<grpc::string, grpc::string>* metadata) override {
    if (!must_exist_ && access(path_.c_str(), F_OK) != 0) {
      return grpc::Status::OK;
    }
    const absl::StatusOr<std::string> text = ReadPrivateFile(path_);
    if (!text.ok()) {
      // Unavailable, which relays try again: the file may be there in a moment.
      return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          std::string(text.status().message()));
    }
    // Editors and shells end a file with a newline, which must not be in
    // metadata.
    const std::string token(absl::StripAsciiWhitespace(*text));
    const bool plain =
        std::all_of(token.begin(), token.end(), absl::ascii_isgraph);
    if (token.empty() || !plain) {
      return grpc::Status(grpc::StatusCode::UNAVAILABLE,
                          path_ + " does not hold a token");
    }
    metadata->emplace("authorization", "Bearer " + token);
    return grpc::Status::OK;
  }

  grpc::string DebugString() override { return "token of " + path_; }

 private:
  const std::string path_;
  const bool must_exist_;
};

std::shared_ptr<grpc::CallCredentials> TokenCredentials(const std::string& path,
                                                        bool must_exist) {
  // The channel under it is TLS, or does not leave this machine. By default
  // gRPC sends call credentials over encrypted channels alone.
  return experimental::MetadataCredentialsFromPlugin(
      std::make_unique<TokenOfFile>(path, must_exist), GRPC_SECURITY_NONE);
}

// The authority's file is watched, so that a new one is used without a restart.
std::shared_ptr<grpc::ChannelCredentials> TlsClient(const std::string& ca) {
  experimental::TlsChannelCredentialsOptions options;
  options.set_certificate_provider(
      std::make_shared<experimental::FileWatcherCertificateProvider>(
          ca, kWatchSeconds));
  options.watch_root_certs();
  return experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ServerCredentials> TlsServer(const ServerFiles& files) {
  experimental::TlsServerCredentialsOptions options(
      std::make_shared<experimental::FileWatcherCertificateProvider>(
          files.tls_key, files.tls_certificate, kWatchSeconds));
  options.watch_identity_key_cert_pairs();
  return experimental::TlsServerCredentials(options);
}

// Plain text is spoken to sockets and loopback only; there is no switch that
// changes that.
absl::StatusOr<AddressKind> CheckKind(absl::string_view address,
                                      const ClientFiles& files) {
  absl::StatusOr<AddressKind> kind = KindOfAddress(address);
  if (!kind.ok()) return kind;
  if (address == DefaultAddress()) {
    // Made by us if there is no daemon yet: nobody else can make it then, and
    // wait for us in it.
    absl::Status ours = MakeRuntimeFolder().status();
    if (!ours.ok()) return ours;
  }
  if (*kind != AddressKind::kNetwork || !files.tls_ca.empty()) return kind;
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", address,
      "\" is not a socket, 127.0.0.1, localhost or [::1], so only TLS is "
      "spoken to it: name the "
      "certificate of the authority that signed the daemon's (ca.pem of "
      "traincheckctl certs init) in TRAINCHECK_TLS_CA or with --tls-ca"));
}

// A token is added wherever one may be needed; only the automatic one is bound
// to this host.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(
    const std::string& address, AddressKind kind, const ClientFiles& files) {
  // Whoever may open the socket is the daemon's user.
  if (kind == AddressKind::kSocket) return grpc::InsecureChannelCredentials();
  auto channel = files.tls_ca.empty()
                     ? experimental::LocalCredentials(LOCAL_TCP)
                     : TlsClient(files.tls_ca);
  if (!files.token.empty()) {
    return grpc::CompositeChannelCredentials(
        channel, TokenCredentials(files.token, /*must_exist=*/true));
  }
  // The automatic token is for a daemon on this host and is sent nowhere else.
  if (kind != AddressKind::kLoopback) return channel;
  return grpc::CompositeChannelCredentials(
      channel, TokenCredentials(AutomaticTokenFile(PortOf(address)),
                                /*must_exist=*/false));
}

}  // namespace

absl::StatusOr<AddressKind> KindOfAddress(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "unix:")) {
    if (address.empty()) return NotAnAddress("unix:");
    return AddressKind::kSocket;
  }
  // The last colon: those of an IPv6 address stand before it, in brackets.
  const size_t colon = address.rfind(':');
  uint32_t port = 0;
  if (colon == absl::string_view::npos || colon == 0 ||
      !absl::SimpleAtoi(address.substr(colon + 1), &port) || port > 65535) {
    return NotAnAddress(address);
  }
  absl::string_view host = address.substr(0, colon);
  if (absl::StartsWith(host, "[") && absl::EndsWith(host, "]")) {
    host = host.substr(1, host.size() - 2);
  }
  return IsLoopback(std::string(host)) ? AddressKind::kLoopback
                                       : AddressKind::kNetwork;
}

std::string PortOf(const std::string& address) {
  if (absl::StartsWith(address, "unix:")) return "";
  return address.substr(address.rfind(':') + 1);
}

// The environment names files and never holds a secret itself.
ClientFiles ClientFilesOf(
    const std::function<const char*(const char*)>& get_env) {
  const auto value = [&](const char* name) {
    const char* const text = get_env(name);
    return std::string(text == nullptr ? "" : text);
  };
  return {value("TRAINCHECK_TLS_CA"), value("TRAINCHECK_TOKEN_FILE")};
}

absl::Status CheckAddress(absl::string_view address, const ClientFiles& files) {
  absl::Status status = CheckKind(address, files).status();
  if (!status.ok() || files.tls_ca.empty() ||
      absl::StartsWith(address, "unix:")) {
    return status;
  }
  // Looked at beforehand: the channel connects later, and would only fail each
  // of its calls.
  return CheckAuthority(files.tls_ca);
}

absl::Status CheckListenAddress(absl::string_view address,
                                const ServerFiles& files) {
  const absl::StatusOr<AddressKind> kind = KindOfAddress(address);
  if (!kind.ok()) return kind.status();
  // Files that are named have to be right, whatever the address.
  if (HasTls(files)) return CheckServerFiles(files);
  if (*kind != AddressKind::kNetwork) return absl::OkStatus();
  return absl::PermissionDeniedError(absl::StrCat(
      "\"", address,
      "\" is not a socket, 127.0.0.1, localhost or [::1], so only TLS is "
      "spoken there: name a certificate and its key (server.pem and server.key "
      "of traincheckctl certs init) "
      "with --tls-cert and --tls-key"));
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const grpc::ChannelArguments& arguments,
    const ClientFiles& files) {
  const absl::StatusOr<AddressKind> kind = CheckKind(address, files);
  if (!kind.ok()) return kind.status();
  // gRPC would send even loopback traffic through $http_proxy.
  grpc::ChannelArguments direct = arguments;
  direct.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(
      address, ChannelCredentialsFor(address, *kind, files), direct);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address, const ServerFiles& files,
    const std::shared_ptr<grpc::AuthMetadataProcessor>& gate) {
  if (absl::Status status = CheckListenAddress(address, files); !status.ok()) {
    return status;
  }
  const bool socket = *KindOfAddress(address) == AddressKind::kSocket;
  std::shared_ptr<grpc::ServerCredentials> credentials;
  if (!socket && HasTls(files)) {
    credentials = TlsServer(files);
  } else {
    credentials =
        // Not insecure ones: gRPC asks the gate only on ports that have
        // credentials.
        experimental::LocalServerCredentials(socket ? UDS : LOCAL_TCP);
  }
  if (gate != nullptr) credentials->SetAuthMetadataProcessor(gate);
  return credentials;
}

}  // namespace traincheck
