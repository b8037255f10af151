// Fact "rows_changed_without_grad": did a step change rows of a parameter whose
// gradients are zero?
//
// Inputs: digests of the rows of data at pre_step and post_step and of the
// gradient at pre_step, which a capture plan must name. Unknown where one of
// them is missing, and of a parameter whose shape or type is not known.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_ROW_CHANGES_H_
#define TRAINCHECK_INVARIANTS_FACTS_ROW_CHANGES_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

// Of one parameter.
class RowChanges {
 public:
  void OnRows(const RowsEvent& event);
  void BeginStep() { *this = RowChanges(); }

  Tri WithoutGrad() const;

  void Fields(Archive& archive) {
    archive(rows_, before_, zero_, compared_, changed_);
  }

 private:
  void Compare(const RowsEvent& event);

  uint64_t rows_ = 0;
  std::vector<uint64_t> before_;  // digests
  std::vector<uint8_t> zero_;     // is the gradient zero?
  uint64_t compared_ = 0;
  bool changed_ = false;  // one without a gradient
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_ROW_CHANGES_H_
