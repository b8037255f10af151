#include "invariants/traincheck/conformance/conformance_trace.h"

#include "absl/status/status.h"
#include "invariants/traincheck/conformance/incomplete_calls.h"

namespace traincheck {

absl::StatusOr<std::unique_ptr<ConformanceTrace>> ConformanceTrace::Load(
    std::unique_ptr<TraceTable> table) {
  // In TrainCheck's order: what is taken out has neither a stage nor a context.
  absl::Status status = RemoveIncompleteCalls(table.get());
  if (!status.ok()) return status;
  // The indexes need a row at least (TraceTable::last_time).
  if (table->rows().empty()) {
    return absl::FailedPreconditionError(
        "nothing is left of it without the calls that have no end");
  }
  table->FillStages();
  absl::StatusOr<ContextManagers> contexts = ContextManagers::Find(table.get());
  if (!contexts.ok()) return contexts.status();
  return std::unique_ptr<ConformanceTrace>(
      new ConformanceTrace(std::move(table), *std::move(contexts)));
}

}  // namespace traincheck
