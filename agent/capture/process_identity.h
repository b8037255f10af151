// Who this process is: what a ProcessDef says. Derived from the environment
// and from /proc.
//
// Processes that multiprocessing spawned carry no trace of their script in the
// environment; it is taken from the process at the top of the chain of such
// parents, the one that the user started.
//
// Threads: pure functions of System.
#ifndef TRAINCHECK_AGENT_CAPTURE_PROCESS_IDENTITY_H_
#define TRAINCHECK_AGENT_CAPTURE_PROCESS_IDENTITY_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/capture/system.h"
#include "proto/record_format.h"

namespace traincheck::agent {

struct ProcessIdentity {
  std::string host;
  std::string boot_id;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  uint32_t parent_pid = 0;
  uint64_t parent_ticks = 0;
  ProcessKind kind = ProcessKind::kOther;
  uint32_t worker_id = 0;
  uint32_t owner_pid = 0;  // 0: none
  uint64_t owner_ticks = 0;
  // Of a loader's worker: equal for those of one pass over the data; the step
  // that was open when its owner forked it.
  std::optional<uint64_t> pass_seed;
  std::optional<uint64_t> owner_step;
  std::string run;
  // Nobody has named the run: ranks may still agree on one of their names.
  bool run_is_provisional = false;
  std::string experiment;
  std::string script;
  uint32_t attempt = 0;
  RunRole role = RunRole::kTarget;
  std::string check_set;  // "": none asked for
  std::string torch_version;
  std::string python_version;
  uint64_t first_recorded_ns = 0;
  // Drawn at random when this program began to record; 0: it could not be. An
  // exec keeps pid and start time, and the program behind it is another.
  uint64_t image = 0;
};

// Everything but versions and time.
ProcessIdentity IdentifyProcess(const System& system);

// The same in a child that `ancestor` forked: same run, owned by it.
ProcessIdentity IdentifyForkedChild(const System& system,
                                    const ProcessIdentity& ancestor);

// What Python was told to run.
struct Script {
  // A script's path, the module after -m, "-c" or "" for an interactive
  // interpreter.
  std::string name;
  bool is_module = false;
};

// `arguments` as in /proc/PID/cmdline.
Script ScriptOf(const std::vector<std::string>& arguments);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_PROCESS_IDENTITY_H_
