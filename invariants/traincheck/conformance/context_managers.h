// Which context managers were active when, by the calls of their __init__,
// __enter__ and __exit__ (semantics, 1.5, steps 5 and 6).
//
// Without signatures only what was given to __init__ by keyword has a name.
//
// Threads: const after construction.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTEXT_MANAGERS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTEXT_MANAGERS_H_

#include <map>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/trace_record.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

class ContextManagers {
 public:
  // `table` must outlive this object. FailedPrecondition: TrainCheck refuses
  // the whole trace.
  static absl::StatusOr<ContextManagers> Find(TraceTable* table);

  // Writes those active at the first record's time, process and thread into
  // all of them. FailedPrecondition: TrainCheck stops here.
  [[nodiscard]] absl::Status WriteActive(
      const std::vector<TraceRecord>& records) const;

 private:
  struct Context {
    const std::string* field = nullptr;  // "meta_vars.context_managers.CLASS"
    int64_t from = 0;
    int64_t to = 0;  // still active then
    PyValue input;   // an object; absent: TrainCheck cannot read it
  };
  class Finder;

  std::map<TableThread, std::vector<Context>> by_thread_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTEXT_MANAGERS_H_
