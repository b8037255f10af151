// What the relay reads from its environment.
//
// Threads: all functions are pure but for the environment that is passed in.
#ifndef TRAINCHECK_AGENT_RELAY_OPTIONS_H_
#define TRAINCHECK_AGENT_RELAY_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/credentials.h"
#include "base/runtime_folder.h"
#include "base/spool_places.h"

namespace traincheck::agent {

struct RelayOptions {
  std::string server = DefaultAddress();
  // What shows who the server is, and who we are.
  ClientFiles files;
  // Tried in this order when a spool is needed.
  std::vector<SpoolPlace> spool_places;
  uint64_t spool_limit_bytes = uint64_t{1} << 30;
  bool spool_limit_is_set = false;
  // How long to try after the end of a process.
  std::chrono::seconds grace{30};
  std::string log_level = "warning";
  // The how-manieth relay of this training process it is; above 1 it goes on
  // with what the one before left.
  uint32_t start = 1;
};

using GetEnv = GetVariable;

// InvalidArgument names the variable and what it may be.
[[nodiscard]] absl::StatusOr<RelayOptions> ParseOptions(const GetEnv& get_env,
                                                        uint32_t uid);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_OPTIONS_H_
