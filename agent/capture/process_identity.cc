#include "agent/capture/process_identity.h"

#include <fcntl.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

namespace traincheck {
namespace {

// Chains of spawned processes are short; this ends a loop in what /proc says.
constexpr int kMaxSpawnDepth = 16;

std::string ReadFile(const std::string& path) {
  std::string content;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return content;
  char buffer[4096];
  ssize_t size;
  while ((size = read(fd, buffer, sizeof buffer)) > 0) {
    content.append(buffer, static_cast<size_t>(size));
  }
  close(fd);
  return content;
}

std::vector<std::string> SplitNul(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\0', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

// Digits at the front of `text`; 0 if there are none.
uint64_t ParseNumber(const std::string& text) {
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

struct Stat {
  uint32_t parent = 0;
  uint64_t start_ticks = 0;
};

// Fields 4 and 22 of /proc/PID/stat. The command's name (field 2) may hold
// spaces and brackets: count from the last bracket.
Stat ReadStat(const System& system, uint32_t pid) {
  const std::string text = system.proc_file(pid, "stat");
  size_t at = text.rfind(')');
  if (at == std::string::npos) return {};
  Stat stat;
  for (int field = 3; field <= 22; ++field) {
    at = text.find(' ', at);
    if (at == std::string::npos) return stat;
    ++at;
    if (field == 4) {
      stat.parent = static_cast<uint32_t>(ParseNumber(text.substr(at)));
    } else if (field == 22) {
      stat.start_ticks = ParseNumber(text.substr(at));
    }
  }
  return stat;
}

std::vector<std::string> Arguments(const System& system, uint32_t pid) {
  return SplitNul(system.proc_file(pid, "cmdline"));
}

bool SpawnedByMultiprocessing(const std::vector<std::string>& arguments) {
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& a) {
    return a == "--multiprocessing-fork" ||
           a.find("from multiprocessing.forkserver import main") == 0;
  });
}

// The process that the user or a launcher started.
uint32_t TopOfSpawnChain(const System& system) {
  uint32_t pid = system.pid;
  for (int depth = 0; depth < kMaxSpawnDepth; ++depth) {
    if (!SpawnedByMultiprocessing(Arguments(system, pid))) return pid;
    const uint32_t parent = ReadStat(system, pid).parent;
    if (parent <= 1 || Arguments(system, parent).empty()) return pid;
    pid = parent;
  }
  return pid;
}

// A variable of the environment that process `top` started with; of this
// process as it is now if it is the top itself.
std::string VariableOf(const System& system, uint32_t top,
                       const std::string& name) {
  if (top == system.pid) return system.environment(name.c_str());
  for (const std::string& line : SplitNul(system.proc_file(top, "environ"))) {
    if (line.compare(0, name.size() + 1, name + "=") == 0) {
      return line.substr(name.size() + 1);
    }
  }
  return "";
}

std::string RunOf(const System& system, uint32_t top) {
  const std::string given = system.environment("TRAINCHECK_RUN");
  if (!given.empty()) return given;
  const std::string job = system.environment("SLURM_JOB_ID");
  if (!job.empty()) {
    const std::string step = system.environment("SLURM_STEP_ID");
    return step.empty() ? job : job + "." + step;
  }
  const std::string elastic = system.environment("TORCHELASTIC_RUN_ID");
  if (!elastic.empty() && elastic != "none") return elastic;
  const Stat stat = ReadStat(system, top);
  if (ParseNumber(VariableOf(system, top, "WORLD_SIZE")) > 1) {
    const Stat parent = ReadStat(system, stat.parent);
    return VariableOf(system, top, "MASTER_ADDR") + "-" +
           VariableOf(system, top, "MASTER_PORT") + "-" +
           std::to_string(parent.start_ticks);
  }
  return system.host + "-" + std::to_string(top) + "-" +
         std::to_string(stat.start_ticks);
}

std::string Stem(const std::string& path) {
  const std::string name = path.substr(path.rfind('/') + 1);
  const size_t dot = name.rfind('.');
  return dot == std::string::npos || dot == 0 ? name : name.substr(0, dot);
}

std::string ExperimentOf(const System& system,
                         const std::vector<std::string>& arguments,
                         const std::string& script) {
  const std::string given = system.environment("TRAINCHECK_EXPERIMENT");
  if (!given.empty()) return given;
  if (script.empty() || script == "-c") return "python";
  const bool is_module =
      std::find(arguments.begin(), arguments.end(), "-m") != arguments.end() &&
      script.find('/') == std::string::npos;
  return is_module ? script : Stem(script);
}

}  // namespace

System System::Real() {
  System system;
  system.environment = [](const char* name) {
    const char* value = std::getenv(name);
    return std::string(value == nullptr ? "" : value);
  };
  system.proc_file = [](uint32_t pid, const char* file) {
    return ReadFile("/proc/" + std::to_string(pid) + "/" + file);
  };
  utsname names = {};
  if (uname(&names) == 0) system.host = names.nodename;
  system.boot_id = ReadFile("/proc/sys/kernel/random/boot_id");
  while (!system.boot_id.empty() && system.boot_id.back() == '\n') {
    system.boot_id.pop_back();
  }
  system.pid = static_cast<uint32_t>(getpid());
  return system;
}

std::string ScriptOf(const std::vector<std::string>& arguments) {
  for (size_t i = 1; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument.empty() || argument == "-") return "";
    if (argument[0] != '-') return argument;
    if (argument[1] == '-') {  // --check-hash-based-pycs takes a value
      if (argument == "--check-hash-based-pycs") ++i;
      continue;
    }
    // A cluster of one-letter options: c, m, X and W end it and take what
    // follows, in this argument or the next.
    const size_t taker = argument.find_first_of("cmXW", 1);
    if (taker == std::string::npos) continue;
    if (argument[taker] == 'c') return "-c";
    const bool joined = taker + 1 < argument.size();
    if (argument[taker] == 'm') {
      if (joined) return argument.substr(taker + 1);
      return i + 1 < arguments.size() ? arguments[i + 1] : "";
    }
    if (!joined) ++i;
  }
  return "";
}

ProcessIdentity IdentifyProcess(const System& system) {
  ProcessIdentity identity;
  const uint32_t top = TopOfSpawnChain(system);
  const std::vector<std::string> arguments = Arguments(system, top);
  const Stat stat = ReadStat(system, system.pid);
  identity.host = system.host;
  identity.boot_id = system.boot_id;
  identity.pid = system.pid;
  identity.start_ticks = stat.start_ticks;
  identity.parent_pid = stat.parent;
  identity.parent_ticks = ReadStat(system, stat.parent).start_ticks;
  identity.script = ScriptOf(arguments);
  identity.experiment = ExperimentOf(system, arguments, identity.script);
  identity.run = RunOf(system, top);
  identity.attempt = static_cast<uint32_t>(
      ParseNumber(system.environment("TORCHELASTIC_RESTART_COUNT")));
  if (system.environment("TRAINCHECK_COLLECT") == "1") {
    identity.role = RunRole::kReference;
  }
  identity.check_set = system.environment("TRAINCHECK_CHECK");
  return identity;
}

ProcessIdentity IdentifyForkedChild(const System& system,
                                    const ProcessIdentity& ancestor) {
  ProcessIdentity identity = ancestor;
  const Stat stat = ReadStat(system, system.pid);
  identity.pid = system.pid;
  identity.start_ticks = stat.start_ticks;
  identity.parent_pid = stat.parent;
  identity.parent_ticks = ReadStat(system, stat.parent).start_ticks;
  identity.kind = ProcessKind::kOther;
  identity.worker_id = 0;
  identity.owner_pid = ancestor.pid;
  identity.owner_ticks = ancestor.start_ticks;
  return identity;
}

}  // namespace traincheck
