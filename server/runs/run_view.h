// A run for those who read what is stored of it, and how runs are asked for.
//
// Threads: plain values.
#ifndef TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_
#define TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_

#include <cstddef>
#include <cstdint>
#include <functional>
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
    // Refused for nothing but that its records are deleted: it may have been
    // checked before.
    bool records_deleted = false;
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

// What is known of a run without its processes.
struct RunOutline {
  bool ended = false;
  std::string experiment;
  std::string check_set;
};

// A run that has not ended, in numbers.
struct RunningRun {
  // Its processes, by state.
  struct Processes {
    uint32_t streaming = 0;
    uint32_t disconnected = 0;
    uint32_t ended = 0;
    uint32_t lost = 0;
  };
  std::string id;
  std::string experiment;
  std::string check_set;
  // The newest that closed on any rank.
  std::optional<uint64_t> last_step;
  uint64_t dropped_records = 0;
  Processes processes;
};

// Which runs are meant; all, unless something is given.
struct RunQuery {
  std::string experiment = {};
  uint64_t started_since_unix_ns = 0;
  std::string id_prefix = {};
  // Of owners that this is true for.
  std::function<bool(const std::string& owner)> sees = nullptr;
  // Of these the newest so many that started before this run: a page.
  size_t newest = 0;
  std::string before = {};
};

// What a run takes in the store, and who holds on to it.
struct RunUse {
  std::string id;
  std::string owner = {};
  uint64_t ended_unix_ns = 0;  // 0: it goes on
  uint64_t stored_bytes = 0;
  bool is_kept = false;
  bool is_checked = false;  // it names a set
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_RUNS_RUN_VIEW_H_
