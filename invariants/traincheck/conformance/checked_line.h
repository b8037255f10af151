// A line of an invariant file, ready to be checked against one trace
// (semantics, 2.1 and 2.2).
//
// Threads: const after construction.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CHECKED_LINE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CHECKED_LINE_H_

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/line_condition.h"
#include "invariants/traincheck/conformance/trace_table.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Of the kinds of params each has some of these. An optional that is not set
// stands for an absent key: do not check. Null is the value None: do.
struct LineParam {
  enum class Kind { kFunction, kVariableType, kVariableName, kInputOutput };

  Kind kind = Kind::kFunction;
  std::string name;                  // function, type of variable, argument
  std::string attribute;             // of variables
  std::optional<PyValue> exception;  // of functions
  std::optional<PyValue> arguments;  // {NAME: {TYPE: VALUE}}
  std::optional<PyValue> before;     // pre_value, post_value, const_value
  std::optional<PyValue> after;
  std::optional<PyValue> constant;
  PyValue index;  // of inputs and outputs; None: null
  PyValue path;
  bool input = false;
};

struct CheckedLine {
  std::vector<LineParam> params;
  std::map<std::string, LineCondition> conditions;  // by group
};

// `rule`: relation, params and precondition as they stand in the line.
// REQUIRES: CheckRuleForm(rule) is ok. FailedPrecondition: TrainCheck does not
// read such a line.
absl::StatusOr<CheckedLine> ReadCheckedLine(const nlohmann::json& rule,
                                            TraceTable* table);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_CHECKED_LINE_H_
