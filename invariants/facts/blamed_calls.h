// Calls to blame for what shows only later: which line has put a module into
// the mode in which it is, which line has made an optimizer.
//
// Inputs: calls of train() and eval() on modules, constructions of optimizers.
// After missing records the last switch of a mode is not known.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_BLAMED_CALLS_H_
#define TRAINCHECK_INVARIANTS_FACTS_BLAMED_CALLS_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

struct BlamedCall {
  uint32_t function = 0;
  uint32_t site = 0;
  uint64_t number = 0;  // among those of the process
  uint32_t open = 0;    // calls of its kind, itself and those within

  void Fields(Archive& archive) { archive(function, site, number, open); }
};

class BlamedCalls final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (HasCategory(call, CallCategory::kTrainMode)) {
      // eval() calls train(False), and that of each module within.
      BlamedCall& outer = switching_[call.ring];
      if (outer.open++ == 0) outer = Begun(call);
      switches_[call.object] = outer;
    } else if (HasCategory(call, CallCategory::kOptimizerInit)) {
      constructions_.push_back(Begun(call));
    }
  }
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (!HasCategory(call, CallCategory::kTrainMode)) return;
    const auto outer = switching_.find(call.ring);
    if (outer != switching_.end() && --outer->second.open == 0) {
      switching_.erase(outer);
    }
  }
  void OnGap() override {
    switches_.clear();
    switching_.clear();
  }

  // The last switch of the module's own mode. Null: not known.
  const BlamedCall* SwitchOf(uint32_t module) const {
    const auto found = switches_.find(module);
    return found == switches_.end() ? nullptr : &found->second;
  }
  // Optimizers are numbered as they are constructed. Null: not known, also
  // where something has made one without calling its base class.
  const BlamedCall* ConstructionOf(uint32_t optimizer) const {
    size_t ordinal = 0, count = 0;
    for (const auto& [id, object] : inputs().definitions.objects()) {
      if (object.kind != ObjectKind::kOptimizer) continue;
      ++count;
      ordinal += id < optimizer;
    }
    if (count != constructions_.size() || ordinal >= count) return nullptr;
    return &constructions_[ordinal];
  }

  void Fields(Archive& archive) override {
    archive(calls_, switching_, switches_, constructions_);
  }

 private:
  BlamedCall Begun(const Call& call) {
    return {call.function_id, call.site, ++calls_, /*open=*/1};
  }
  uint64_t calls_ = 0;
  std::map<uint32_t, BlamedCall> switching_;  // outermost open one, by ring
  std::map<uint32_t, BlamedCall> switches_;   // by module
  std::vector<BlamedCall> constructions_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_BLAMED_CALLS_H_
