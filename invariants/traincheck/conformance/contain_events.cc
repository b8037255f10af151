#include "invariants/traincheck/conformance/contain_events.h"

#include <algorithm>
#include <iterator>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// Words that a line may have in the place of a value, pre_value or post_value,
// for many values.
struct Symbol {
  absl::string_view name;
  bool of_numbers;  // of other values TrainCheck does not take it
  bool none;        // does None satisfy it?
  bool below, zero, above;
};

// As TrainCheck evaluates them, which is not always what the name says: None
// satisfies non_positive and non_negative.
constexpr Symbol kSymbols[] = {
    {"above_zero", true, false, false, false, true},
    {"below_zero", true, false, true, false, false},
    {"non_zero", true, false, true, false, true},
    {"non_positive", true, true, true, true, false},
    {"non_negative", true, true, false, true, true},
    {"non_none", false, false, true, true, true},
    {"anything", false, true, true, true, true},
};

const Symbol* FindSymbol(const PyValue& value) {
  if (value.kind() != PyValue::Kind::kText) return nullptr;
  for (const Symbol& symbol : kSymbols) {
    if (value.text() == symbol.name) return &symbol;
  }
  return nullptr;
}

absl::StatusOr<bool> Satisfies(const Symbol& symbol, const PyValue& value) {
  if (value.none()) return symbol.none;
  if (!value.number()) {
    if (!symbol.of_numbers) return true;
    return absl::FailedPreconditionError(absl::StrCat(
        symbol.name, " is asked of ", PyValueText(value), ", not a number"));
  }
  bool nan = false;
  // A number has an order with 0: NaN is not a number here (PyValue::Float).
  const int order = *ComparePyValues(value, PyValue::Integer(0), &nan);
  return order < 0 ? symbol.below : order > 0 ? symbol.above : symbol.zero;
}

absl::StatusOr<bool> EndMatches(const std::optional<PyValue>& expected,
                                const PyValue& value) {
  // An equal value first: a text may be the name of a symbol.
  if (!expected || *expected == value) return true;
  const Symbol* symbol = FindSymbol(*expected);
  if (symbol == nullptr) return false;
  return Satisfies(*symbol, value);
}

absl::StatusOr<bool> Matches(const LineParam& child,
                             const AttributeChange& change) {
  // The value behind the change only where the one before fits: what TrainCheck
  // does not evaluate cannot stop it.
  absl::StatusOr<bool> before = EndMatches(child.before, change.before->value);
  if (!before.ok() || !*before) return before;
  return EndMatches(child.after, change.after->value);
}

// The call may have been given more than what is asked for.
bool HasArguments(const PyValue& asked, const PyValue& keywords) {
  return std::all_of(asked.object().begin(), asked.object().end(),
                     [&](const PyMember& argument) {
                       const PyValue* given = keywords.Find(*argument.key);
                       return given != nullptr && *given == argument.value;
                     });
}

// Name and type.
using VariableNames = std::set<std::pair<std::string, std::string>>;

absl::Status AddProxyNames(const PyValue& names, VariableNames* variables) {
  static constexpr char kForm[] =
      "proxy_obj_names is not a list of names and types";
  if (names.absent()) return absl::OkStatus();
  if (names.kind() != PyValue::Kind::kList) {
    return absl::FailedPreconditionError(kForm);
  }
  for (const PyValue& entry : names.list()) {
    const bool pair = entry.kind() == PyValue::Kind::kList &&
                      entry.list().size() == 2 &&
                      std::all_of(entry.list().begin(), entry.list().end(),
                                  [](const PyValue& text) {
                                    return text.kind() == PyValue::Kind::kText;
                                  });
    if (!pair) return absl::FailedPreconditionError(kForm);
    const std::string& name = entry.list()[0].text();
    const std::string& type = entry.list()[1].text();
    if (!name.empty() || !type.empty()) variables->insert({name, type});
  }
  return absl::OkStatus();
}

// What the call's object has met in calls before.
absl::StatusOr<VariableNames> Related(const TableRow& begin,
                                      const TraceTable& table) {
  // Only false ends TrainCheck; a call without the flag passes.
  if (table.At(begin, "is_bound_method") == PyValue::Bool(false)) {
    return absl::FailedPreconditionError(
        absl::StrCat(*begin.function, " is not bound to an object"));
  }
  // All lines for each call: no file is known to have the group, so that
  // nothing is indexed for it.
  const PyValue object = table.At(begin, "obj_id");
  VariableNames variables;
  for (const TableRow& row : table.rows()) {
    // A call without an object has NaN for its id, which equals nothing, so no
    // earlier call is one of the same object.
    if (row.kind != TraceLineKind::kCallBegin || row.time >= begin.time ||
        table.At(row, "obj_id") != object) {
      continue;
    }
    if (row.in() != begin.in()) {
      return absl::FailedPreconditionError(absl::StrCat(
          "the object of ", *begin.function, " is used by several threads"));
    }
    if (!table.Has("proxy_obj_names")) {
      return absl::FailedPreconditionError("proxy_obj_names is not recorded");
    }
    absl::Status status =
        AddProxyNames(table.At(row, "proxy_obj_names"), &variables);
    if (!status.ok()) return status;
  }
  return variables;
}

// Those of the child's type, without those that change in the call.
// Which variables a call could have changed and did not: those that its object
// has met before, less those that changed while it ran.
absl::StatusOr<VariableNames> Unchanged(const LineParam& child,
                                        const CallEnds& ends,
                                        ConformanceTrace* trace) {
  absl::StatusOr<VariableNames> related = Related(*ends.begin, trace->table());
  if (!related.ok()) return related;
  const CallSpan span(ends, trace->calls().LastTime(ends.begin->in()));
  const auto changes = trace->variables().Changes(ends.begin->pid, span,
                                                  child.name, child.attribute);
  VariableNames unchanged;
  for (const auto& variable : *related) {
    // The changes are of this type and attribute already, so the name is
    // enough.
    const bool changes_here = std::any_of(
        changes.begin(), changes.end(), [&](const AttributeChange& change) {
          return *change.variable->name == variable.first;
        });
    if (variable.second == child.name && !changes_here) {
      unchanged.insert(variable);
    }
  }
  return unchanged;
}

}  // namespace

absl::StatusOr<bool> HasChildCall(const LineParam& child, const CallEnds& ends,
                                  ConformanceTrace* trace) {
  const TraceTable& table = trace->table();
  for (const TableCall* call : trace->calls().Within(ends, child.name)) {
    const absl::StatusOr<CallEnds> inner = trace->calls().Ends(*call);
    if (!inner.ok()) return inner.status();
    // Where no exception is asked for, a call without an end counts, too.
    const bool ended =
        child.exception
            ? inner->raised() &&
                  table.At(*inner->end, "exception") == *child.exception
            : !inner->raised();
    if (!ended) continue;
    if (!child.arguments) return true;
    // Where no line has the column each call counts as one without keywords.
    // Where others have it a call without is an error.
    const PyValue keywords = table.Has("kwargs")
                                 ? table.At(*inner->begin, "kwargs")
                                 : trace->table().pool().Object({});
    if (keywords.kind() != PyValue::Kind::kObject) {
      return absl::FailedPreconditionError(
          absl::StrCat("the keyword arguments of the call ", *call->id, " of ",
                       child.name, " are not recorded"));
    }
    if (HasArguments(*child.arguments, keywords)) return true;
  }
  return false;
}

absl::StatusOr<bool> HasChildChange(const LineParam& child,
                                    const CallEnds& ends,
                                    ConformanceTrace* trace) {
  const CallSpan span(ends, trace->calls().LastTime(ends.begin->in()));
  const int64_t pid = ends.begin->pid;
  // By name TrainCheck looks at the values of all changes first, and leaves the
  // name itself aside.
  const bool by_name = child.kind == LineParam::Kind::kVariableName;
  const auto changes = by_name ? trace->variables().Changes(pid, span)
                               : trace->variables().Changes(
                                     pid, span, child.name, child.attribute);
  for (const AttributeChange& change : changes) {
    absl::StatusOr<bool> matches = Matches(child, change);
    if (!matches.ok()) return matches;
    if (*matches && *change.variable->type == child.name &&
        *change.attribute == child.attribute) {
      return true;
    }
  }
  return false;
}

absl::StatusOr<bool> AllCallsLeaveVariables(const CheckedLine& line,
                                            ConformanceTrace* trace) {
  const LineParam& child = line.params[1];
  if (child.kind != LineParam::Kind::kVariableType) {
    return absl::FailedPreconditionError(
        "var_events goes with a VarTypeParam only");
  }
  for (const TableCall* call : trace->calls().Of(line.params[0].name)) {
    const absl::StatusOr<CallEnds> ends = trace->calls().Ends(*call);
    if (!ends.ok()) return ends.status();
    const absl::StatusOr<VariableNames> unchanged =
        Unchanged(child, *ends, trace);
    if (!unchanged.ok()) return unchanged.status();
    // One call that changes all its variables is enough for the events within
    // calls to judge the whole line.
    if (unchanged->empty()) return false;
  }
  return true;
}

absl::StatusOr<bool> UnchangedAreExpected(const LineParam& child,
                                          const LineCondition& variables,
                                          const TableCall& call,
                                          const CallEnds& ends,
                                          ConformanceTrace* trace) {
  const absl::StatusOr<VariableNames> unchanged = Unchanged(child, ends, trace);
  if (!unchanged.ok()) return unchanged.status();
  const TraceTable& table = trace->table();
  bool all = true;
  for (const auto& [name, type] : *unchanged) {
    // The records are copies for this question alone: what is written into them
    // is seen by no other.
    WrittenFields written;
    std::vector<TraceRecord> records;
    for (const TableRow& row : table.rows()) {
      if (row.kind == TraceLineKind::kState && row.pid == ends.begin->pid &&
          row.time < ends.begin->time &&
          table.At(row, "var_name").text() == name &&
          table.At(row, "var_type").text() == type) {
        records.push_back({&row, &written});
      }
    }
    if (records.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(name, " has no state before the call ", *call.id));
    }
    absl::StatusOr<bool> holds = variables.Holds(records, trace->contexts());
    if (!holds.ok()) return holds;
    // All are evaluated, also behind one that does not hold: TrainCheck may
    // stop at any of them.
    all = all && *holds;
  }
  return all;
}

}  // namespace traincheck
