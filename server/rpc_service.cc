#include "server/rpc_service.h"

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/logging.h"
#include "grpc/support/log.h"
#include "grpcpp/resource_quota.h"
#include "grpcpp/server_builder.h"
#include "server/control/limits.h"

namespace traincheck::server {
namespace {

constexpr int kKeepaliveMs = 10'000;

// gRPC's own lines concern connections of others; what matters here is said
// by us.
void LogGrpc(gpr_log_func_args* args) {
  spdlog::debug("grpc file={} line={} message=\"{}\"", args->file, args->line,
                args->message);
}

void SetArguments(uint64_t wire_bytes, grpc::ServerBuilder* builder) {
  grpc::ResourceQuota memory("wire");
  memory.Resize(wire_bytes);
  builder->SetResourceQuota(memory);
  builder->SetMaxReceiveMessageSize(kMaxReceiveBytes);
  // gRPC would shrink a stream's window where the quota is nearly used, and
  // gives it back only when bytes come: a sender whose window is closed waits
  // for ever. What a message needs beyond the fixed window it gets by name.
  builder->AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
  // Two daemons on one port would share its clients.
  builder->AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
  // A peer whose machine is gone is noticed within 20 s.
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveMs);
  builder->AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  builder->AddChannelArgument(
      GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, 1'000);
  // A connection that says nothing is closed after this time.
  builder->AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS,
                              kKeepaliveMs);
}

}  // namespace

absl::StatusOr<std::unique_ptr<RpcServer>> RpcServer::Start(
    const Options& options, const std::shared_ptr<Gate>& gate,
    const Services& services) {
  const std::string& address = options.listen;
  absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> credentials =
      MakeServerCredentials(address, options.tls, gate);
  if (!credentials.ok()) return credentials.status();
  gpr_set_log_function(LogGrpc);
  std::unique_ptr<RpcServer> rpc(new RpcServer(services));
  grpc::ServerBuilder builder;
  SetArguments(options.wire_bytes, &builder);
  int port = 0;
  builder.AddListeningPort(address, *credentials, &port);
  builder.RegisterService(services.ingest);
  builder.RegisterService(services.control);
  builder.RegisterService(services.feedback);
  builder.RegisterService(services.comparison);
  builder.RegisterService(services.zoom);
  builder.RegisterService(services.access);
  rpc->server_ = builder.BuildAndStart();
  if (rpc->server_ == nullptr || port == 0) {
    return absl::UnavailableError(absl::StrCat(
        "cannot listen on ", address, ": is another program using it?"));
  }
  rpc->address_ =
      absl::StartsWith(address, "unix:")
          ? address
          : absl::StrCat(address.substr(0, address.rfind(':')), ":", port);
  return rpc;
}

void RpcServer::Stop(absl::Duration patience) {
  // Before gRPC's own shutdown, which would wait out its patience for streams
  // and watchers that never end by themselves.
  services_.ingest->Stop();
  services_.control->Stop();
  services_.feedback->Stop();
  services_.comparison->Stop();
  services_.zoom->Stop();
  server_->Shutdown(absl::ToChronoTime(absl::Now() + patience));
  server_->Wait();
}

}  // namespace traincheck::server
