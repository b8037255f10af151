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
#include <map>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class RowChanges final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override;
  void OnRows(const RowsEvent& event) override;
  void OnGap() override { parameters_.clear(); }

  // In the last step of its optimizer.
  Tri WithoutGrad(uint32_t parameter) const;

  void Fields(Archive& archive) override;

 private:
  struct Parameter {
    uint64_t rows = 0;
    std::vector<uint64_t> before;  // digests
    std::vector<uint8_t> zero;     // is the gradient zero?
    uint64_t compared = 0;
    bool changed = false;  // one without a gradient

    void Compare(const RowsEvent& event);
    void Fields(Archive& archive);
  };

  std::map<uint32_t, Parameter> parameters_;  // by variable
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_ROW_CHANGES_H_
