#include "server/jobs/process_memory.h"

#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <string>

namespace traincheck::server {

uint64_t PeakBytes(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/status");
  std::string word;
  while (file >> word) {
    uint64_t kib = 0;
    // The high-water mark of the kernel, in KiB: a look at the present size
    // would miss peaks.
    if (word == "VmHWM:" && file >> kib) return kib << 10;
  }
  return 0;
}

uint64_t MachineBytes() {
  uint64_t bytes = static_cast<uint64_t>(sysconf(_SC_PHYS_PAGES)) *
                   static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  // The files of cgroup version 2 and 1. "max" means no limit and does not
  // parse as a number.
  for (const char* path : {"/sys/fs/cgroup/memory.max",
                           "/sys/fs/cgroup/memory/memory.limit_in_bytes"}) {
    uint64_t limit = 0;
    if (std::ifstream(path) >> limit) bytes = std::min(bytes, limit);
  }
  return bytes;
}

}  // namespace traincheck::server
