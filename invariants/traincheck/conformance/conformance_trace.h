// A trace with all that the relations look up in it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONFORMANCE_TRACE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONFORMANCE_TRACE_H_

#include <memory>
#include <utility>

#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/call_index.h"
#include "invariants/traincheck/conformance/call_tensors.h"
#include "invariants/traincheck/conformance/context_managers.h"
#include "invariants/traincheck/conformance/function_order.h"
#include "invariants/traincheck/conformance/trace_table.h"
#include "invariants/traincheck/conformance/variable_index.h"

namespace traincheck {

class ConformanceTrace {
 public:
  // Loads what was read as TrainCheck does (semantics, 1.5).
  // FailedPrecondition: TrainCheck refuses the whole trace.
  static absl::StatusOr<std::unique_ptr<ConformanceTrace>> Load(
      std::unique_ptr<TraceTable> table);
  ConformanceTrace(const ConformanceTrace&) = delete;
  ConformanceTrace& operator=(const ConformanceTrace&) = delete;

  TraceTable& table() { return *table_; }
  const ContextManagers& contexts() const { return contexts_; }
  CallIndex& calls() { return calls_; }
  CallTensors& tensors() { return tensors_; }
  // Made when they are first asked for: not every file has such lines.
  VariableIndex& variables() {
    if (!variables_) variables_ = std::make_unique<VariableIndex>(*table_);
    return *variables_;
  }
  FunctionOrder& order() {
    if (!order_) order_ = std::make_unique<FunctionOrder>(*table_);
    return *order_;
  }

 private:
  ConformanceTrace(std::unique_ptr<TraceTable> table, ContextManagers contexts)
      : table_(std::move(table)),
        contexts_(std::move(contexts)),
        calls_(table_.get()),
        tensors_(table_.get()) {}

  const std::unique_ptr<TraceTable> table_;
  const ContextManagers contexts_;
  CallIndex calls_;
  CallTensors tensors_;
  std::unique_ptr<VariableIndex> variables_;
  std::unique_ptr<FunctionOrder> order_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CONFORMANCE_TRACE_H_
