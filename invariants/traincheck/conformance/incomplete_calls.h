// What TrainCheck does with calls of which a trace has one line only, as it is
// cut off in the middle of a run (semantics, 1.5, step 3).
//
// Threads: pure function over its table.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_INCOMPLETE_CALLS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_INCOMPLETE_CALLS_H_

#include "absl/status/status.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

// Takes them out of the table, or all that follows on their thread.
// FailedPrecondition: TrainCheck refuses the whole trace, for the reason given.
[[nodiscard]] absl::Status RemoveIncompleteCalls(TraceTable* table);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_INCOMPLETE_CALLS_H_
