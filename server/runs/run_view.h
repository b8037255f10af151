// A run for those who read what is stored of it.
//
// Threads: plain values.
#ifndef TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_
#define TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "invariants/trace/stored_batch.h"

namespace traincheck::server {

// What readers of stored batches need of a run. Cursors and ends are those of
// the synced store.
struct RunView {
  struct Process {
    uint32_t number = 0;
    uint64_t next_batch = 0;
    std::optional<ProcessEnd> end;
    // Holds a rank that another process holds, or its records are deleted:
    // left out of checks.
    bool refused = false;
    // A stream is open.
    bool connected = false;
    // Trains; `rank` and `world` where they are known.
    bool is_main = false;
    uint32_t attempt = 0;
    std::optional<int32_t> rank;
    int32_t world = 0;
    // The capture plan that it last began to record under, and the last step
    // that had closed by then.
    std::optional<uint64_t> plan_version;
    std::optional<uint64_t> plan_after_step;
    std::string name;
    std::string reason;
    std::string torch_version;
  };
  std::string id;
  uint64_t number = 0;
  std::string experiment;
  std::string check_set;
  bool is_reference = false;
  bool ended = false;
  // The newest that closed on any rank.
  std::optional<uint64_t> last_step;
  // Retention deleted records of it: nothing can be learned from it.
  bool records_deleted = false;
  std::vector<Process> processes;  // by number
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_
