// Fact "grad.clipped_in_vain": are gradients that were clipped thrown away
// before any optimizer steps?
//
// Inputs: clipping, backwards, steps, steps that a scaler skips, zero_grad. Who
// skips a bad batch clips in vain once; who clips after the step does each
// time, so that the fact is about processes in which no clipping was ever used.
// Unknown after missing records until a clipping is used.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_CLIPPED_GRADIENTS_H_
#define TRAINCHECK_INVARIANTS_FACTS_CLIPPED_GRADIENTS_H_

#include <cstdint>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class ClippedGradients final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (HasCategory(call, CallCategory::kClipGrad)) waits_ = true;
    if (!waits_) return;
    if (IsOptimizerStep(call)) Use();
    if (call.Is(kOutermost) && HasCategory(call, CallCategory::kBackward)) {
      Waste();
    }
    if (call.Is(kOutermost) && HasCategory(call, CallCategory::kZeroGrad)) {
      Waste();
    }
  }
  void OnMark(const MarkEvent& mark) override {
    if (waits_ && mark.kind == MarkKind::kStepSkipped) Use();
  }
  void OnGap() override {
    waits_ = false;
    missed_ = true;
  }

  // Was anything ever clipped and then kept for a step or thrown away?
  bool happened() const { return used_ || wasted_ > 0; }
  // Twice or more, and never was one used.
  Tri InVain() const {
    if (used_) return Tri::kNo;
    return missed_ ? Tri::kUnknown : ToTri(wasted_ > 1);
  }

  void Fields(Archive& archive) override {
    archive(waits_, used_, missed_, wasted_);
  }

 private:
  void Use() {
    waits_ = false;
    used_ = true;
  }
  void Waste() {
    waits_ = false;
    ++wasted_;
  }

  bool waits_ = false;  // something was clipped, and no step came since
  bool used_ = false;
  bool missed_ = false;
  uint64_t wasted_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_CLIPPED_GRADIENTS_H_
