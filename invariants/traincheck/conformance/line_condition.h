// The precondition of a line of an invariant file, as TrainCheck evaluates it
// (semantics, 2.2 and 2.3).
//
// Threads: const after construction.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_CONDITION_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_CONDITION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/context_managers.h"
#include "invariants/traincheck/conformance/trace_record.h"
#include "nlohmann/json.hpp"

namespace traincheck {

enum class ClauseType { kConstant, kConsistent, kUnequal, kExist };

struct LineClause {
  ClauseType type = ClauseType::kExist;
  const std::string* name = nullptr;  // of the field
  std::optional<uint32_t> column;     // none: no line of the trace has it
  std::vector<PyValue> path;          // into the field's value
  absl::flat_hash_set<PyValue> values;
};

// A group: any of its alternatives, each all of its clauses; or the contrary.
class LineCondition {
 public:
  // `table` must outlive this object. REQUIRES: CheckRuleForm of the line is
  // ok. FailedPrecondition: TrainCheck does not read such a group.
  static absl::StatusOr<LineCondition> Read(const nlohmann::json& group,
                                            TraceTable* table);

  // Writes the active context managers into the records, then evaluates.
  // FailedPrecondition: TrainCheck stops here. REQUIRES: there are records.
  absl::StatusOr<bool> Holds(const std::vector<TraceRecord>& records,
                             const ContextManagers& contexts) const;

  // Says its group anything at all?
  bool conditional() const;

 private:
  struct Alternative {
    bool unconditional = false;
    std::vector<LineClause> clauses;
  };

  absl::StatusOr<bool> AnyHolds(const std::vector<TraceRecord>& records) const;
  absl::StatusOr<bool> ClauseHolds(
      const LineClause& clause, const std::vector<TraceRecord>& records) const;

  const TraceTable* table_ = nullptr;
  bool inverted_ = false;
  std::vector<Alternative> alternatives_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_CONDITION_H_
