// What this machine says about a process: its environment and /proc, both
// replaceable in tests.
//
// Threads: pure functions of System.
#ifndef TRAINCHECK_AGENT_CAPTURE_SYSTEM_H_
#define TRAINCHECK_AGENT_CAPTURE_SYSTEM_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

namespace traincheck::agent {

// Where the facts come from.
struct System {
  // Environment variable, "" if not set; a setting also from its file.
  std::function<std::string(const char* name)> environment;
  // Content of /proc/<pid>/<file>, "" if it cannot be read.
  std::function<std::string(uint32_t pid, const char* file)> proc_file;
  // The current folder of a process, "" if it cannot be read.
  std::function<std::string(uint32_t pid)> folder;
  // Is there such a file or folder?
  std::function<bool(const std::string& path)> exists;
  std::string host;
  std::string boot_id;
  uint32_t pid = 0;

  static System Real();
};

// Digits at the front of `text`; 0 if there are none.
uint64_t ParseNumber(const std::string& text);

struct ProcessStat {
  uint32_t parent = 0;
  uint64_t start_ticks = 0;
};
// Of /proc/PID/stat; zeros if it cannot be read.
ProcessStat ReadStat(const System& system, uint32_t pid);

// As in /proc/PID/cmdline.
std::vector<std::string> Arguments(const System& system, uint32_t pid);

// Did multiprocessing start it by the methods spawn or forkserver?
bool SpawnedByMultiprocessing(const System& system, uint32_t pid);

// The process at the top of the chain of such parents: the one that the user
// or a launcher started.
uint32_t TopOfSpawnChain(const System& system, uint32_t pid);

// A variable of the environment that process `pid` started with; of this
// process as it is now if it is `pid` itself.
std::string VariableOf(const System& system, uint32_t pid,
                       const std::string& name);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_SYSTEM_H_
