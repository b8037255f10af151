// What the relay reads from its environment.
//
// Threads: all functions are pure but for the environment that is passed in.
#ifndef TRAINCHECK_AGENT_RELAY_OPTIONS_H_
#define TRAINCHECK_AGENT_RELAY_OPTIONS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <string>

#include "absl/status/statusor.h"
#include "base/credentials.h"
#include "base/runtime_folder.h"

namespace traincheck::agent {

struct RelayOptions {
  std::string server = DefaultAddress();
  // What shows who the server is, and who we are.
  ClientFiles files;
  // Tried in this order; each is created with mode 0700 when it is needed.
  std::string spool_dir;
  std::string fallback_spool_dir;
  uint64_t spool_limit_bytes = uint64_t{1} << 30;
  // How long to try after the end of a process.
  std::chrono::seconds grace{30};
  std::string log_level = "warning";
  // The how-manieth relay of this training process it is; above 1 it goes on
  // with what the one before left.
  uint32_t start = 1;
};

// Value of an environment variable; nullptr: not set.
using GetEnv = std::function<const char*(const char*)>;

// InvalidArgument names the variable and what it may be.
[[nodiscard]] absl::StatusOr<RelayOptions> ParseOptions(const GetEnv& get_env,
                                                        uint32_t uid);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_OPTIONS_H_
