#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "invariants/traincheck/conformance/line_relations.h"
#include "invariants/traincheck/conformance/py_path.h"

namespace traincheck {

namespace {

constexpr char kGroup[] = "pre_event";

// What is wrong with a call for which the precondition holds; "": nothing.
// Nullopt: it does not count.
using CallOutcome = absl::StatusOr<std::optional<std::string>>;

// Asks for each call of the function that has returned, up to the first with
// which something is wrong.
LineResult CheckCalls(const CheckedLine& line, const std::string& function,
                      ConformanceTrace* trace,
                      absl::FunctionRef<CallOutcome(const CallEnds&)> ask) {
  // What is written into a call's copy is kept in the index: these relations
  // share it, across the lines of the file.
  const LineCondition& condition = line.conditions.at(kGroup);
  bool triggered = false;
  for (TableCall* call : trace->calls().Of(function)) {
    const absl::StatusOr<CallEnds> ends = trace->calls().Event(*call);
    if (!ends.ok()) return ends.status();
    // A call that raised, or that the end of the trace cuts off, has returned
    // nothing.
    if (!ends->complete()) continue;
    const absl::StatusOr<bool> holds =
        condition.Holds({{ends->begin, &call->written}}, trace->contexts());
    if (!holds.ok()) return holds.status();
    if (!*holds) continue;
    CallOutcome outcome = ask(*ends);
    if (!outcome.ok()) return outcome.status();
    if (!outcome->has_value()) continue;
    // Only now: a call that does not count does not trigger the line.
    triggered = true;
    if (!(*outcome)->empty()) return LineFails(**outcome, {ends->begin});
  }
  return LineHolds(triggered);
}

// The value of an InputOutputParam among tensors.
absl::StatusOr<PyLookup> ValueIn(const PyValue& tensors,
                                 const LineParam& param) {
  PyLookup found = PyItem(tensors, param.index);
  // A path that is not a list is an error there, once there is a tensor in
  // which it would be followed.
  if (found.value && param.path.kind() != PyValue::Kind::kList) found = {};
  if (found.value) {
    for (const PyValue& key : param.path.list()) {
      found = PyItem(*found.value, key);
      if (!found.value) break;
    }
  }
  if (found.value || found.missing) return found;
  return absl::FailedPreconditionError(
      absl::StrCat("the path of ", param.name,
                   " leads into what is neither a list nor an object"));
}

// An argument that was given by keyword.
absl::StatusOr<PyValue> Argument(const LineParam& param, const CallEnds& ends,
                                 const TraceTable& table) {
  if (!param.path.none()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the argument ", param.name, " has a path"));
  }
  const PyValue keywords = table.At(*ends.begin, "kwargs");
  const PyValue* argument = keywords.Find(param.name);
  const bool typed = argument != nullptr &&
                     argument->kind() == PyValue::Kind::kObject &&
                     !argument->object().empty();
  if (typed) return argument->object().front().value;
  return absl::FailedPreconditionError(absl::StrCat(
      "the call ", *ends.begin->call, " of ", *ends.begin->function,
      " has no argument ", param.name, " by keyword"));
}

absl::Status CheckDirections(bool fine) {
  if (fine) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "one of its params must be an input and the other an output");
}

}  // namespace

// params: the function, and an attribute with the value that it must have in
// each tensor that a call returns.
LineResult CheckOutput(const CheckedLine& line, ConformanceTrace* trace) {
  const LineParam& attribute = line.params[1];
  if (attribute.kind != LineParam::Kind::kVariableType) {
    return absl::FailedPreconditionError(
        "a ConsistentOutput of a variable by name is not implemented there");
  }
  const auto name = PyValue(trace->table().pool().Text(attribute.attribute));
  const auto ask = [&](const CallEnds& ends) -> CallOutcome {
    const absl::StatusOr<PyValue>& tensors = trace->tensors().Returned(ends);
    if (!tensors.ok()) return tensors.status();
    // A call without a tensor fails there, and is not passed over.
    if (tensors->list().empty()) return std::string("it returns no tensor");
    for (const PyValue& tensor : tensors->list()) {
      const std::optional<PyValue> value = PyItem(tensor, name).value;
      if (!value) {
        return absl::StrCat("a tensor that it returns has no ",
                            attribute.attribute);
      }
      if (!attribute.constant || *value != *attribute.constant) {
        return absl::StrCat("the ", attribute.attribute,
                            " of a tensor that it returns is ",
                            PyValueText(*value));
      }
    }
    return std::string();
  };
  return CheckCalls(line, line.params[0].name, trace, ask);
}

// params: a value of an input, the function, a value of an output. A call that
// lacks one of the values does not count.
LineResult CheckInputOutput(const CheckedLine& line, ConformanceTrace* trace) {
  const LineParam& input = line.params[0];
  const LineParam& output = line.params[2];
  absl::Status status = CheckDirections(input.input && !output.input);
  if (!status.ok()) return status;
  const auto ask = [&](const CallEnds& ends) -> CallOutcome {
    const absl::StatusOr<PyValue>& inputs = trace->tensors().Inputs(ends);
    if (!inputs.ok()) return inputs.status();
    const absl::StatusOr<PyValue>& outputs = trace->tensors().Returned(ends);
    if (!outputs.ok()) return outputs.status();
    const absl::StatusOr<PyLookup> in = ValueIn(*inputs, input);
    if (!in.ok()) return in.status();
    if (!in->value) return std::nullopt;
    const absl::StatusOr<PyLookup> out = ValueIn(*outputs, output);
    if (!out.ok()) return out.status();
    if (!out->value) return std::nullopt;
    if (*in->value == *out->value) return std::string();
    return absl::StrCat("the input has ", PyValueText(*in->value),
                        ", the output ", PyValueText(*out->value));
  };
  return CheckCalls(line, line.params[1].name, trace, ask);
}

// params: what must not be less, the function, what must not be greater. One of
// the two is an argument. Unlike with inputs and outputs, a value that is
// missing ends TrainCheck.
LineResult CheckThreshold(const CheckedLine& line, ConformanceTrace* trace) {
  const LineParam& larger = line.params[0];
  const LineParam& smaller = line.params[2];
  absl::Status status = CheckDirections(larger.input != smaller.input);
  if (!status.ok()) return status;
  const LineParam& threshold = larger.input ? larger : smaller;
  const LineParam& output = larger.input ? smaller : larger;
  const auto ask = [&](const CallEnds& ends) -> CallOutcome {
    const absl::StatusOr<PyValue> limit =
        Argument(threshold, ends, trace->table());
    if (!limit.ok()) return limit.status();
    const absl::StatusOr<PyValue>& tensors = trace->tensors().Returned(ends);
    if (!tensors.ok()) return tensors.status();
    const absl::StatusOr<PyLookup> found = ValueIn(*tensors, output);
    if (!found.ok()) return found.status();
    if (!found->value) {
      return absl::FailedPreconditionError(
          absl::StrCat("what ", *ends.begin->function,
                       " returns has no value at the path of the output"));
    }
    const PyValue& value = *found->value;
    bool nan = false;
    const std::optional<int> order = larger.input
                                         ? ComparePyValues(*limit, value, &nan)
                                         : ComparePyValues(value, *limit, &nan);
    if (!order) {
      return absl::FailedPreconditionError(absl::StrCat(
          PyValueText(value), " and ", PyValueText(*limit), " have no order"));
    }
    // With NaN neither order holds, as in Python.
    if (!nan && *order >= 0) return std::string();
    return absl::StrCat("the output has ", PyValueText(value), ", ",
                        threshold.name, " is ", PyValueText(*limit));
  };
  return CheckCalls(line, line.params[1].name, trace, ask);
}

}  // namespace traincheck
