#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/contain_events.h"
#include "invariants/traincheck/conformance/line_relations.h"

namespace traincheck {

namespace {

constexpr char kParentGroup[] = "parent_func_call_pre";
constexpr char kVariableGroup[] = "var_events";

// Is one of these the event that must be in each call?
absl::StatusOr<bool> HasChild(const LineParam& child, const TableCall& parent,
                              const CallEnds& ends, ConformanceTrace* trace) {
  absl::Status whole = trace->calls().CheckWithin(parent, ends);
  if (!whole.ok()) return whole;
  if (child.kind == LineParam::Kind::kFunction) {
    return HasChildCall(child, ends, trace);
  }
  return HasChildChange(child, ends, trace);
}

std::string WhatIsMissing(const LineParam& child) {
  // Arguments by position have no names here, so the text says by keyword.
  if (child.kind != LineParam::Kind::kFunction) {
    return absl::StrCat("nothing in it changes the ", child.attribute, " of a ",
                        child.name, " as it must");
  }
  return absl::StrCat(
      "it does not call ", child.name,
      child.arguments ? " with these arguments by keyword" : "");
}

}  // namespace

LineResult CheckContain(const CheckedLine& line, ConformanceTrace* trace) {
  const LineParam& child = line.params[1];
  // The group var_events judges in the place of the child if the line has it
  // with a condition and every call leaves some variable unchanged. That
  // depends on all calls, so it is settled before the first is judged.
  const auto variables = line.conditions.find(kVariableGroup);
  absl::StatusOr<bool> by_variables = false;
  if (variables != line.conditions.end() && variables->second.conditional()) {
    by_variables = AllCallsLeaveVariables(line, trace);
    if (!by_variables.ok()) return by_variables.status();
  }
  bool triggered = false;
  for (const TableCall* parent : trace->calls().Of(line.params[0].name)) {
    const absl::StatusOr<CallEnds> ends = trace->calls().Ends(*parent);
    if (!ends.ok()) return ends.status();
    // A copy of its own for each call and line: unlike with other relations,
    // what is written into it is not seen by later lines.
    WrittenFields written;
    const absl::StatusOr<bool> holds =
        line.conditions.at(kParentGroup)
            .Holds({{ends->begin, &written}}, trace->contexts());
    if (!holds.ok()) return holds.status();
    if (!*holds) continue;
    triggered = true;
    // Also where var_events judges: TrainCheck looks within the call first, and
    // stops there at what is not whole.
    const absl::StatusOr<bool> found = HasChild(child, *parent, *ends, trace);
    if (!found.ok()) return found.status();
    if (!*by_variables) {
      if (!*found) return LineFails(WhatIsMissing(child), {ends->begin});
      continue;
    }
    const absl::StatusOr<bool> explained =
        UnchangedAreExpected(child, variables->second, *parent, *ends, trace);
    if (!explained.ok()) return explained.status();
    if (!*explained) {
      return LineFails(
          "a variable that it leaves as it is does not satisfy "
          "var_events",
          {ends->begin});
    }
  }
  return LineHolds(triggered);
}

}  // namespace traincheck
