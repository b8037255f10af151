// What this process takes of its machine.
//
// Threads: pure functions over /proc.
#ifndef TRAINCHECK_SERVER_METRICS_PROCESS_USAGE_H_
#define TRAINCHECK_SERVER_METRICS_PROCESS_USAGE_H_

#include <cstdint>
#include <optional>

namespace traincheck::server {

struct ProcessUsage {
  double cpu_seconds = 0;  // user and system, of all threads
  uint64_t resident_bytes = 0;
  uint64_t open_files = 0;
  uint64_t max_files = 0;
};

// nullopt: /proc is not there.
std::optional<ProcessUsage> UsageOfSelf();

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_METRICS_PROCESS_USAGE_H_
