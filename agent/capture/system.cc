#include "agent/capture/system.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <algorithm>

#include "agent/capture/agent_settings.h"

namespace traincheck::agent {
namespace {

// Chains of spawned processes are short; this ends a loop in what /proc says.
constexpr int kMaxSpawnDepth = 16;

std::string ReadFile(const std::string& path) {
  std::string content;
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return content;
  char buffer[4096];
  ssize_t size;
  // Files of /proc have no size beforehand: they are read to their end.
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

}  // namespace

// The real functions; tests pass their own, so that identities are checked
// without such processes.
System System::Real() {
  System system;
  // Settings from their file too: run, experiment and what is checked.
  system.environment = SettingOf;
  system.proc_file = [](uint32_t pid, const char* file) {
    return ReadFile("/proc/" + std::to_string(pid) + "/" + file);
  };
  system.folder = [](uint32_t pid) {
    const std::string link = "/proc/" + std::to_string(pid) + "/cwd";
    char target[PATH_MAX];
    const ssize_t size = readlink(link.c_str(), target, sizeof target);
    return size < 0 ? "" : std::string(target, static_cast<size_t>(size));
  };
  system.exists = [](const std::string& path) {
    return access(path.c_str(), F_OK) == 0;
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

// Launchers' variables and /proc hold plain decimal numbers; anything else ends
// the number.
uint64_t ParseNumber(const std::string& text) {
  uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') break;
    value = value * 10 + static_cast<uint64_t>(c - '0');
  }
  return value;
}

// Fields 4 and 22. The command's name (field 2) may hold spaces and brackets:
// count from the last bracket.
ProcessStat ReadStat(const System& system, uint32_t pid) {
  const std::string text = system.proc_file(pid, "stat");
  size_t at = text.rfind(')');
  if (at == std::string::npos) return {};
  ProcessStat stat;
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

bool SpawnedByMultiprocessing(const System& system, uint32_t pid) {
  const std::vector<std::string> arguments = Arguments(system, pid);
  // How CPython starts them: spawn by an option, forkserver by a line of code
  // behind -c.
  return std::any_of(arguments.begin(), arguments.end(), [](const auto& a) {
    return a == "--multiprocessing-fork" ||
           a.find("from multiprocessing.forkserver import main") == 0;
  });
}

// Follows parents upwards as long as multiprocessing started them.
uint32_t TopOfSpawnChain(const System& system, uint32_t pid) {
  for (int depth = 0; depth < kMaxSpawnDepth; ++depth) {
    if (!SpawnedByMultiprocessing(system, pid)) return pid;
    const uint32_t parent = ReadStat(system, pid).parent;
    // Its parent has ended, or is not to be seen from here.
    if (parent <= 1 || Arguments(system, parent).empty()) return pid;
    pid = parent;
  }
  return pid;
}

std::string VariableOf(const System& system, uint32_t pid,
                       const std::string& name) {
  // /proc shows only what a process was started with, not what it has set
  // since.
  if (pid == system.pid) return system.environment(name.c_str());
  for (const std::string& line : SplitNul(system.proc_file(pid, "environ"))) {
    if (line.compare(0, name.size() + 1, name + "=") == 0) {
      return line.substr(name.size() + 1);
    }
  }
  return "";
}

}  // namespace traincheck::agent
