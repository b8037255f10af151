#include "agent/relay/process_liveness.h"

#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace traincheck::agent {
namespace {

constexpr uint64_t kNsPerS = 1'000'000'000;

}  // namespace

std::string BootId() {
  std::string id;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> id;
  return id;
}

std::string HostName() {
  char name[256] = {};
  return gethostname(name, sizeof name - 1) == 0 ? name : "";
}

// The start time makes a pid unique: pids are used again.
std::optional<uint64_t> StartTicks(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), {});
  // The name, field 2, may hold anything; field 3 follows its last bracket.
  const size_t bracket = text.rfind(')');
  if (bracket == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(bracket + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t ticks = 0;
  if (!(fields >> ticks)) return std::nullopt;
  return ticks;
}

uint64_t UnixNsOfStart(uint64_t start_ticks) {
  const auto nanoseconds = [](clockid_t clock) {
    timespec now = {};
    clock_gettime(clock, &now);
    return static_cast<uint64_t>(now.tv_sec) * kNsPerS +
           static_cast<uint64_t>(now.tv_nsec);
  };
  // Start times count the time that the machine slept, as CLOCK_BOOTTIME does
  // and CLOCK_MONOTONIC does not.
  const uint64_t boot =
      nanoseconds(CLOCK_REALTIME) - nanoseconds(CLOCK_BOOTTIME);
  const auto ticks_per_s = static_cast<uint64_t>(sysconf(_SC_CLK_TCK));
  return boot + start_ticks * (kNsPerS / ticks_per_s);
}

// Pids are compared only within one namespace; containers on a host have
// namespaces of their own.
uint64_t PidNamespace() {
  struct stat status;
  return stat("/proc/self/ns/pid", &status) == 0 ? status.st_ino : 0;
}

// exec keeps pid and start time, but drops all mappings: that is how another
// program in the process is recognised.
std::optional<bool> HasMapped(uint32_t pid, uint64_t inode) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/maps");
  const std::string wanted = std::to_string(inode);
  // Stays empty where no line can be read: the process is gone, or its maps are
  // forbidden.
  std::optional<bool> found;
  for (std::string line; std::getline(file, line);) {
    // range, permissions, offset, device, inode, name
    std::istringstream fields(line);
    std::string skipped, at;
    fields >> skipped >> skipped >> skipped >> skipped >> at;
    // A file of another file system may have the number, too. The ring then
    // counts as mapped, and the process as the one that it was.
    found = at == wanted;
    if (*found) break;
  }
  return found;
}

// "Dead" must be certain, since a file of a dead process is taken over. In
// doubt the answer is kUnknown.
Liveness LivenessOf(const v1::ProcessIdentity& process,
                    uint64_t pid_namespace) {
  const std::string boot = BootId();
  if (boot.empty()) return Liveness::kUnknown;
  // The folder may be shared with other machines, on which it lives, also with
  // one that has the same name (virtual machines of one image). So a machine
  // that has started anew does not know its own either.
  if (process.boot_id() != boot) return Liveness::kUnknown;
  // Pids are used again; with its start time a pid is one process.
  if (StartTicks(process.pid()) == process.start_ticks()) {
    return Liveness::kAlive;
  }
  // A missing pid says something only in the namespace in which it was given.
  const bool can_look = pid_namespace != 0 && pid_namespace == PidNamespace();
  return can_look ? Liveness::kDead : Liveness::kUnknown;
}

}  // namespace traincheck::agent
