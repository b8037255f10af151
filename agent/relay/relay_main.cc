// traincheck-relay: brings the records of training processes on this machine
// to traincheckd. The agent starts it, with the listening socket as
// descriptor 3. By hand (traincheckctl does it): --send-spool [DIR] and
// --list-spool [DIR].
#include <unistd.h>

#include <cstdlib>
#include <string>

#include "agent/relay/handover.h"
#include "agent/relay/options.h"
#include "agent/relay/process_setup.h"
#include "agent/relay/relay.h"
#include "agent/relay/send_spool.h"
#include "base/logging.h"

namespace traincheck::agent {
namespace {

constexpr int kListener = 3;

int Fail(const absl::Status& status) {
  spdlog::error("{}", std::string(status.message()));
  return 2;
}

// traincheckctl's side: the relay's half of `spool send` and `spool list`.
// The same program does this by hand, so that only one program knows the format
// of spool files.
int MainOfSpool(decltype(SendSpool)* act, const std::string& folder) {
  SetUpGrpcEnvironment();
  const absl::StatusOr<RelayOptions> options = ParseOptions(getenv, getuid());
  InitLogging("traincheck-relay",
              options.ok() ? options->log_level : RelayOptions().log_level);
  if (!options.ok()) return Fail(options.status());
  return act(*options, folder);
}

// Standard files come first, so that no other descriptor takes their numbers.
// Descriptors, processors and signals are settled before gRPC starts threads,
// which inherit them.
int Main() {
  OpenStandardFiles();
  CloseFrom(kListener + 1);
  ResetAffinity();
  SetUpGrpcEnvironment();
  const UniqueFd terminate = SetUpSignals();
  const absl::StatusOr<RelayOptions> options = ParseOptions(getenv, getuid());
  InitLogging("traincheck-relay",
              options.ok() ? options->log_level : RelayOptions().log_level);
  if (!options.ok()) return Fail(options.status());
  const absl::Status listener = PrepareListener(kListener);
  if (!listener.ok()) return Fail(listener);
  const absl::Status status = Relay(*options, kListener, terminate.get()).Run();
  return status.ok() ? 0 : Fail(status);
}

}  // namespace
}  // namespace traincheck::agent

// Calls that a hanging server has not ended may still hold gRPC: no
// destructors of its globals run.
int main(int argc, char** argv) {
  namespace agent = traincheck::agent;
  const std::string first = argc == 2 || argc == 3 ? argv[1] : "";
  const std::string folder = argc == 3 ? argv[2] : "";
  if (first == "--send-spool") {
    _exit(agent::MainOfSpool(agent::SendSpool, folder));
  }
  if (first == "--list-spool") {
    _exit(agent::MainOfSpool(agent::ListSpool, folder));
  }
  _exit(agent::Main());
}
