// What the variables of a trace were when (semantics, 1.6).
//
// Threads: const after construction, but for what is written into records.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_VARIABLE_INDEX_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_VARIABLE_INDEX_H_

#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "absl/strings/string_view.h"
#include "invariants/traincheck/conformance/call_index.h"
#include "invariants/traincheck/conformance/trace_record.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

// A variable's attribute with one value.
struct AttributeState {
  PyValue value;
  int64_t from = 0;
  int64_t to = 0;
  const TableRow* last = nullptr;  // that said so
  WrittenFields written;           // into its copy of that row
};

struct FollowedAttribute {
  const std::string* name = nullptr;
  std::vector<AttributeState> states;  // by time
};

// One process's variable of this name and type.
struct TableVariable {
  int64_t pid = 0;
  const std::string* name = nullptr;
  const std::string* type = nullptr;
  std::vector<FollowedAttribute> attributes;  // as they were seen first

  // Null: none of its lines has it.
  FollowedAttribute* Find(absl::string_view attribute);
};

struct AttributeChange {
  const TableVariable* variable = nullptr;
  const std::string* attribute = nullptr;
  const AttributeState* before = nullptr;
  const AttributeState* after = nullptr;
  size_t number = 0;  // TrainCheck looks at changes in this order
};

class VariableIndex {
 public:
  // `table` must outlive this object and not change.
  explicit VariableIndex(const TraceTable& table);
  VariableIndex(const VariableIndex&) = delete;
  VariableIndex& operator=(const VariableIndex&) = delete;

  std::deque<TableVariable>& all() { return variables_; }

  // Of the process, within the span, in TrainCheck's order.
  std::vector<AttributeChange> Changes(int64_t pid, const CallSpan& span) const;
  // Of variables of one type and this attribute only.
  std::vector<AttributeChange> Changes(int64_t pid, const CallSpan& span,
                                       absl::string_view type,
                                       absl::string_view attribute) const;

 private:
  using Key = std::tuple<int64_t, std::string, std::string>;

  void Follow(const TraceTable& table, const std::vector<const TableRow*>& rows,
              TableVariable* variable) const;
  void IndexChanges();

  int64_t last_time_;
  std::deque<TableVariable> variables_;  // as they were seen first
  // By time.
  std::map<int64_t, std::vector<AttributeChange>> by_process_;
  std::map<Key, std::vector<AttributeChange>> by_attribute_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_VARIABLE_INDEX_H_
