// The environment that makes the agent record a training: the same for `run`,
// which sets it, and `env`, which prints it.
#ifndef TRAINCHECK_CTL_RUN_MONITORING_ENVIRONMENT_H_
#define TRAINCHECK_CTL_RUN_MONITORING_ENVIRONMENT_H_

#include <optional>
#include <string>
#include <vector>

#include "ctl/run/repository_file.h"

namespace traincheck::ctl {

struct MonitoringOptions {
  std::string agent_library;  // empty: nothing is preloaded
  std::string server;
  std::string run;         // empty: the agent finds an id
  std::string experiment;  // empty: the agent takes the script's path
  bool collect = false;
  bool full = false;                   // with collect: torch's functions too
  std::string check_set;               // empty: none
  bool without_builtin = false;        // said by the user; in check_set by now
  std::string plan;                    // file; empty: the usual one
  std::string config;                  // file of settings; empty: none
  std::vector<SilencedRule> silenced;  // check_set leaves them out
};

struct Variable {
  std::string name;
  std::optional<std::string> value;  // none: removed
};

// `preload`: the LD_PRELOAD that is there already; ours goes before it.
std::vector<Variable> MonitoringVariables(const MonitoringOptions& options,
                                          const std::string& preload);

// `base` ("NAME=value") with the variables changed.
std::vector<std::string> ChangedEnvironment(
    const char* const* base, const std::vector<Variable>& variables);

// "export NAME=value" and "unset NAME" lines for a POSIX shell.
std::string ShellLines(const std::vector<Variable>& variables);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_MONITORING_ENVIRONMENT_H_
