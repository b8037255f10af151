#include "base/credentials.h"

#include <arpa/inet.h>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"

namespace traincheck {
namespace {

bool IsLoopback(const std::string& host) {
  if (host == "localhost") return true;
  in_addr v4;
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) {
    return (ntohl(v4.s_addr) >> 24) == 127;
  }
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

}  // namespace

absl::Status CheckAddress(absl::string_view address) {
  if (absl::ConsumePrefix(&address, "unix:")) {
    return address.empty() ? NotAnAddress("unix:") : absl::OkStatus();
  }
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
  if (!IsLoopback(std::string(host))) {
    return absl::PermissionDeniedError(absl::StrCat(
        "\"", address,
        "\" is not on loopback: this version speaks plain text "
        "only and therefore only to 127.0.0.1, localhost, [::1] and "
        "unix:PATH. Use one of these, for example through an SSH tunnel"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::shared_ptr<grpc::Channel>> MakeChannel(
    const std::string& address, const grpc::ChannelArguments& arguments) {
  if (absl::Status status = CheckAddress(address); !status.ok()) return status;
  // gRPC would send even loopback traffic through $http_proxy.
  grpc::ChannelArguments direct = arguments;
  direct.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  return grpc::CreateCustomChannel(address, grpc::InsecureChannelCredentials(),
                                   direct);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> MakeServerCredentials(
    const std::string& address) {
  if (absl::Status status = CheckAddress(address); !status.ok()) return status;
  return grpc::InsecureServerCredentials();
}

}  // namespace traincheck
