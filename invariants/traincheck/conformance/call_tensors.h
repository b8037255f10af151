// What of a call TrainCheck takes for tensors (semantics, 3.4 and 3.5).
//
// FailedPrecondition of each: TrainCheck stops there.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_TENSORS_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_TENSORS_H_

#include "absl/container/node_hash_map.h"
#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/call_index.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

class CallTensors {
 public:
  // `table` must outlive this object.
  explicit CallTensors(TraceTable* table) : table_(*table) {}
  CallTensors(const CallTensors&) = delete;
  CallTensors& operator=(const CallTensors&) = delete;

  // A list of the attributes of each tensor among what the call returns, or
  // among its positional arguments and then those by keyword, in the order of
  // the trace. What was found is kept: many lines ask for the same call.
  // REQUIRES: ends.complete().
  const absl::StatusOr<PyValue>& Returned(const CallEnds& ends);
  const absl::StatusOr<PyValue>& Inputs(const CallEnds& ends);

 private:
  using ByRow = absl::node_hash_map<const TableRow*, absl::StatusOr<PyValue>>;

  TraceTable& table_;
  ByRow returned_;
  ByRow inputs_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CALL_TENSORS_H_
