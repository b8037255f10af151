#include "invariants/traincheck/conformance/call_tensors.h"

#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// Taken out of what is returned, in this spelling only.
constexpr absl::string_view kLeftOut = "_TRAINCHECK_data_ID";

// TrainCheck's own test. Unlike IsTensorClass, by which traces are imported, it
// takes every type of torch with "Tensor" in its name.
bool IsTensorType(absl::string_view type) {
  static constexpr absl::string_view kTorch = "torch.";
  if (absl::StrContains(type, "Parameter")) return true;
  return absl::StartsWith(type, kTorch) &&
         absl::StrContains(type.substr(kTorch.size()), "Tensor");
}

absl::Status Unrecorded(const TableRow& row, absl::string_view what) {
  return absl::FailedPreconditionError(
      absl::StrCat(what, " of the call ", *row.call, " of ", *row.function,
                   " are not recorded, or not in TrainCheck's form"));
}

PyValue WithoutLeftOut(const PyValue& attributes, PyPool* pool) {
  if (attributes.Find(kLeftOut) == nullptr) return attributes;
  PyObject kept;
  for (const PyMember& member : attributes.object()) {
    if (*member.key != kLeftOut) kept.push_back(member);
  }
  return pool->Object(std::move(kept));
}

// {NAME: {TYPE: ATTRIBUTES}}; absent: there is no such column in the trace.
// The attributes are not looked at here: whoever follows a path into them finds
// out whether it leads anywhere.
absl::Status AddArguments(const CallEnds& ends, const TraceTable& table,
                          const char* column, PyList* tensors) {
  if (!table.Has(column)) return absl::OkStatus();
  const PyValue arguments = table.At(*ends.begin, column);
  if (arguments.kind() != PyValue::Kind::kObject) {
    return Unrecorded(*ends.begin, column);
  }
  for (const PyMember& argument : arguments.object()) {
    if (argument.value.kind() != PyValue::Kind::kObject ||
        argument.value.object().size() != 1) {
      return Unrecorded(*ends.begin, column);
    }
    const PyMember& typed = argument.value.object().front();
    if (IsTensorType(*typed.key)) tensors->push_back(typed.value);
  }
  return absl::OkStatus();
}

absl::StatusOr<PyValue> ReturnedTensors(const CallEnds& ends,
                                        TraceTable* table) {
  static constexpr char kReturned[] = "return_values";
  if (!table->Has(kReturned)) return Unrecorded(*ends.end, kReturned);
  const PyValue returned = table->At(*ends.end, kReturned);
  // Not recorded of this call: as if it returned no tensor.
  if (returned.absent()) return table->pool().List({});
  // One value stands there as it is, several as a list.
  PyList values = {returned};
  if (returned.kind() == PyValue::Kind::kList) values = returned.list();
  PyList tensors;
  for (const PyValue& value : values) {
    if (value.kind() != PyValue::Kind::kObject || value.object().empty()) {
      return Unrecorded(*ends.end, kReturned);
    }
    // Unlike arguments, a value with several types is not refused: the first
    // one counts.
    const PyMember& typed = value.object().front();
    if (!IsTensorType(*typed.key)) continue;
    if (typed.value.kind() != PyValue::Kind::kObject) {
      return Unrecorded(*ends.end, kReturned);
    }
    tensors.push_back(WithoutLeftOut(typed.value, &table->pool()));
  }
  return table->pool().List(std::move(tensors));
}

// An InputOutputParam counts the tensors in this order.
absl::StatusOr<PyValue> InputTensors(const CallEnds& ends, TraceTable* table) {
  PyList tensors;
  for (const char* column : {"args", "kwargs"}) {
    absl::Status status = AddArguments(ends, *table, column, &tensors);
    if (!status.ok()) return status;
  }
  return table->pool().List(std::move(tensors));
}

}  // namespace

const absl::StatusOr<PyValue>& CallTensors::Returned(const CallEnds& ends) {
  // By the row of the end, which belongs to this call alone. A failure is kept,
  // too: each line that asks gets the same reason. Callers hold references,
  // which a node_hash_map keeps valid while it grows.
  const auto known = returned_.find(ends.end);
  if (known != returned_.end()) return known->second;
  return returned_.emplace(ends.end, ReturnedTensors(ends, &table_))
      .first->second;
}

const absl::StatusOr<PyValue>& CallTensors::Inputs(const CallEnds& ends) {
  const auto known = inputs_.find(ends.begin);
  if (known != inputs_.end()) return known->second;
  return inputs_.emplace(ends.begin, InputTensors(ends, &table_)).first->second;
}

}  // namespace traincheck
