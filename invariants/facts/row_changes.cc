#include "invariants/facts/row_changes.h"

#include <optional>

#include "invariants/trace/call_contexts.h"
#include "proto/content_digest.h"

namespace traincheck {

namespace {

// Digest of a row of zeros; nullopt: what a row is is not known.
std::optional<uint64_t> ZeroRow(const VariableInfo& variable) {
  const Dtype dtype = DtypeOfName(variable.dtype);
  uint64_t bytes = DtypeBytes(dtype);
  if (bytes == 0 || variable.shape.empty()) return std::nullopt;
  // Shapes come from records, and this takes its time.
  constexpr uint64_t kMostBytes = uint64_t{1} << 24;
  for (size_t i = 1; i < variable.shape.size(); ++i) {
    if (variable.shape[i] > kMostBytes) return std::nullopt;
    bytes *= variable.shape[i];
    if (bytes > kMostBytes) return std::nullopt;
  }
  return DigestOfZeros(bytes, dtype);
}

}  // namespace

void RowChanges::OnCallBegin(const Call& call) {
  if (!IsOptimizerStep(call)) return;
  const Optimizer* optimizer = inputs().ownership.Find(call.object);
  if (!optimizer) return;
  for (const HeldVariable& held : optimizer->held) {
    const auto found = parameters_.find(held.variable);
    // Rows are compared within one step of the parameter's optimizer.
    if (found != parameters_.end()) found->second = Parameter();
  }
}

void RowChanges::OnRows(const RowsEvent& event) {
  Parameter& parameter = parameters_[event.variable_id];
  const bool at_begin = event.point == StatePoint::kPreStep;
  if (at_begin && event.of == kHasData) {
    parameter.rows = event.rows;
    std::vector<uint64_t>& before = parameter.before;
    // Parts come in order. If one is missing the list stays short, and the step
    // is unknown.
    if (event.first_row != before.size()) return;
    before.insert(before.end(), event.digests.begin(), event.digests.end());
  } else if (at_begin && event.of == kHasGrad) {
    // The agent records digests and not values: a row of zeros is known by the
    // digest that zeros of its type and size have.
    const auto zero = ZeroRow(*event.variable);
    if (!zero || event.first_row != parameter.zero.size()) return;
    for (const uint64_t digest : event.digests) {
      parameter.zero.push_back(digest == *zero);
    }
  } else if (event.point == StatePoint::kPostStep && event.of == kHasData) {
    parameter.Compare(event);
  }
}

void RowChanges::Parameter::Compare(const RowsEvent& event) {
  if (event.first_row != compared || compared > before.size()) return;
  const uint64_t last = event.first_row + event.digests.size();
  // Rows whose content before the step, or whose gradient, is not known are not
  // compared.
  if (last > before.size() || last > zero.size()) return;
  for (size_t i = 0; i < event.digests.size(); ++i) {
    const uint64_t row = event.first_row + i;
    changed |= zero[row] != 0 && before[row] != event.digests[i];
  }
  compared = last;
}

Tri RowChanges::WithoutGrad(uint32_t parameter) const {
  const auto found = parameters_.find(parameter);
  if (found == parameters_.end()) return Tri::kUnknown;
  // Only the last step of the parameter's optimizer counts (OnCallBegin).
  const Parameter& of = found->second;
  // One row is enough, whatever was not compared. That no row changed is known
  // of all rows together only.
  if (of.changed) return Tri::kYes;
  const bool all = of.rows > 0 && of.compared == of.rows;
  return all ? Tri::kNo : Tri::kUnknown;
}

void RowChanges::Fields(Archive& archive) { archive(parameters_); }

void RowChanges::Parameter::Fields(Archive& archive) {
  archive(rows, before, zero, compared, changed);
}

}  // namespace traincheck
