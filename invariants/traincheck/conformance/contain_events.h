// The events within a call that APIContain looks for (semantics, 3.2), and its
// group var_events, which no file of TrainCheck's is known to have.
//
// FailedPrecondition of each: TrainCheck stops there.
//
// Threads: pure functions over the trace.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTAIN_EVENTS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTAIN_EVENTS_H_

#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/checked_line.h"
#include "invariants/traincheck/conformance/conformance_trace.h"

namespace traincheck {

// Does a call of the child's function lie within it, with its arguments?
absl::StatusOr<bool> HasChildCall(const LineParam& child, const CallEnds& ends,
                                  ConformanceTrace* trace);
// Does such a variable change within it, from and to these values?
absl::StatusOr<bool> HasChildChange(const LineParam& child,
                                    const CallEnds& ends,
                                    ConformanceTrace* trace);

// Does each call of the line's first function leave a variable unchanged that
// its object has met in an earlier call? Then var_events judges, and the events
// within calls do not.
absl::StatusOr<bool> AllCallsLeaveVariables(const CheckedLine& line,
                                            ConformanceTrace* trace);
// Do all these variables of the call satisfy var_events by what they were
// before?
absl::StatusOr<bool> UnchangedAreExpected(const LineParam& child,
                                          const LineCondition& variables,
                                          const TableCall& call,
                                          const CallEnds& ends,
                                          ConformanceTrace* trace);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONTAIN_EVENTS_H_
