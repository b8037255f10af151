#include "invariants/facts/row_changes.h"

#include <algorithm>

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

void RowChanges::OnRows(const RowsEvent& event) {
  const bool at_begin = event.point == StatePoint::kPreStep;
  if (at_begin && event.of == kHasData) {
    rows_ = event.rows;
    if (event.first_row != before_.size()) return;
    before_.insert(before_.end(), event.digests.begin(), event.digests.end());
  } else if (at_begin && event.of == kHasGrad) {
    const auto zero = ZeroRow(*event.variable);
    if (!zero || event.first_row != zero_.size()) return;
    for (const uint64_t digest : event.digests) {
      zero_.push_back(digest == *zero);
    }
  } else if (event.point == StatePoint::kPostStep && event.of == kHasData) {
    Compare(event);
  }
}

void RowChanges::Compare(const RowsEvent& event) {
  if (event.first_row != compared_ || compared_ > before_.size()) return;
  const uint64_t last = event.first_row + event.digests.size();
  if (last > before_.size() || last > zero_.size()) return;
  for (size_t i = 0; i < event.digests.size(); ++i) {
    const uint64_t row = event.first_row + i;
    changed_ |= zero_[row] != 0 && before_[row] != event.digests[i];
  }
  compared_ = last;
}

Tri RowChanges::WithoutGrad() const {
  if (changed_) return Tri::kYes;
  const bool all = rows_ > 0 && compared_ == rows_;
  return all ? Tri::kNo : Tri::kUnknown;
}

}  // namespace traincheck
