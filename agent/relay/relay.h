// The relay's loop: takes in training processes, polls their rings and ends
// when all of them are gone and delivered or spooled.
//
// Threads: Run is one thread; gRPC's own threads only wake it.
#ifndef TRAINCHECK_AGENT_RELAY_RELAY_H_
#define TRAINCHECK_AGENT_RELAY_RELAY_H_

#include <poll.h>

#include <chrono>
#include <memory>
#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "agent/relay/compressor.h"
#include "agent/relay/options.h"
#include "agent/relay/orphans.h"
#include "agent/relay/plan_table.h"
#include "agent/relay/process_stream.h"
#include "agent/relay/relay_context.h"
#include "agent/relay/spool_directory.h"
#include "agent/relay/wake.h"

namespace traincheck::agent {

class Relay {
 public:
  // `listener` and `terminate` (readable when the relay should hurry) stay
  // the caller's.
  Relay(const RelayOptions& options, int listener, int terminate);
  Relay(const Relay&) = delete;
  Relay& operator=(const Relay&) = delete;

  // Returns when nothing is left to do. PermissionDenied or InvalidArgument:
  // the server's address is not allowed.
  [[nodiscard]] absl::Status Run();

 private:
  using TimePoint = std::chrono::steady_clock::time_point;

  bool MayEnd(TimePoint now) const;
  void Poll(TimePoint now);
  // What the poll has found.
  void AcceptAll(TimePoint now);
  void Hurry();
  // Closes stderr some time after the last process has ended.
  void MayLetGoOfStderr(TimePoint now);
  void HearProcesses(const std::vector<pollfd>& polled, TimePoint now);

  const RelayOptions options_;
  const int listener_;
  const int terminate_;
  bool terminating_ = false;
  const std::shared_ptr<Wake> wake_;  // shared with calls that outlive us
  SpoolDirectory spool_directory_;
  Compressor compressor_;
  PlanTable plans_;
  RelayContext context_;
  std::optional<Orphans> orphans_;  // once there is a channel
  TimePoint started_;
  bool had_rings_ = false;
  TimePoint last_alive_;  // when some process was last seen alive
  bool has_stderr_ = true;
  TimePoint accept_from_{};  // until then nobody is accepted
  std::vector<std::unique_ptr<ProcessStream>> processes_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_RELAY_H_
