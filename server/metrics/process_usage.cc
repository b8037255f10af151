#include "server/metrics/process_usage.h"

#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

namespace traincheck::server {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) +
         1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

std::optional<ProcessUsage> UsageOfSelf() {
  ProcessUsage usage;
  std::ifstream statm("/proc/self/statm");
  uint64_t all = 0, resident = 0;
  // In pages; the first number is address space, which says little.
  if (!(statm >> all >> resident)) return std::nullopt;
  usage.resident_bytes = resident * static_cast<uint64_t>(getpagesize());
  // All threads of the daemon, those that have ended included.
  rusage used = {};
  if (getrusage(RUSAGE_SELF, &used) == 0) {
    usage.cpu_seconds = Seconds(used.ru_utime) + Seconds(used.ru_stime);
  }
  std::error_code error;
  const std::filesystem::directory_iterator files("/proc/self/fd", error);
  if (error) return std::nullopt;
  // One of them is the iterator's.
  usage.open_files =
      static_cast<uint64_t>(std::distance(begin(files), end(files)) - 1);
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) usage.max_files = limit.rlim_cur;
  return usage;
}

}  // namespace traincheck::server
