// What all processes of one relay share.
//
// Owned by the Relay, borrowed by its ProcessStreams. Threads: the loop's,
// except `wake`, which any thread may call at any time.
#ifndef TRAINCHECK_AGENT_RELAY_RELAY_CONTEXT_H_
#define TRAINCHECK_AGENT_RELAY_RELAY_CONTEXT_H_

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "agent/relay/compressor.h"
#include "agent/relay/plan_table.h"
#include "agent/relay/spool_directory.h"
#include "agent/relay/stream.h"

namespace traincheck::agent {

struct RelayContext {
  std::string server;
  std::shared_ptr<grpc::Channel> channel;
  std::function<void()> wake;
  SpoolDirectory* spool_directory = nullptr;
  Compressor* compressor = nullptr;
  PlanTable* plans = nullptr;
  // Is there a relay before this one, whose processes it takes over?
  bool takes_over = false;
  // How long to try after the end of a process; shorter after SIGTERM.
  std::chrono::seconds grace{0};
  // Said once for all processes.
  bool told_unreachable = false;
  bool told_spool_fails = false;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RELAY_CONTEXT_H_
