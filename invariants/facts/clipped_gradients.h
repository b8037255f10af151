// Fact "grad.clipped_in_vain": are gradients that were clipped thrown away
// before any optimizer steps?
//
// Inputs: clipping, backwards, steps, steps that a scaler skips, zero_grad. Who
// clips after the step or before the backward clips what is of no use. Where a
// backward came before, the user may have taken what was clipped: who clips the
// gradients of each sample adds them up, and clears. The fact is about
// processes in which no clipping was ever used.
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
    contexts_.OnCallBegin(call);
    if (HasCategory(call, CallCategory::kClipGrad)) Clip(call);
    const bool backward =
        call.Is(kOutermost) && HasCategory(call, CallCategory::kBackward);
    const bool clears =
        call.Is(kOutermost) && HasCategory(call, CallCategory::kZeroGrad);
    if (waits_ && IsOptimizerStep(call)) Use();
    if (waits_ && (backward || clears)) Waste();
    if (IsOptimizerStep(call)) stepped_ = true;
    if (backward) stepped_ = false;
  }
  void OnCallEnd(const Call& call) override { contexts_.OnCallEnd(call); }
  void OnMark(const MarkEvent& mark) override {
    if (waits_ && mark.kind == MarkKind::kStepSkipped) Use();
  }
  void OnGap() override {
    waits_ = stepped_ = false;
    missed_ = true;
  }

  // Was anything ever clipped and then kept for a step or clipped in vain?
  bool happened() const { return used_ || wasted_; }
  Tri InVain() const {
    if (used_) return Tri::kNo;
    return missed_ ? Tri::kUnknown : ToTri(wasted_);
  }

  void Fields(Archive& archive) override {
    archive(contexts_, waits_, late_, stepped_, used_, missed_, wasted_);
  }

 private:
  void Clip(const Call& call) {
    // A closure clips what the step that called it is about to use.
    if (contexts_.InsideStep(call.ring)) return Use();
    waits_ = true;
    late_ = stepped_;
  }
  void Use() {
    waits_ = false;
    used_ = true;
  }
  void Waste() {
    waits_ = false;
    wasted_ |= late_;
  }

  CallContexts contexts_;
  bool waits_ = false;   // something was clipped, and no step came since
  bool late_ = false;    // and no backward since a step, when it was
  bool stepped_ = true;  // since the last backward, or none came yet
  bool used_ = false;
  bool missed_ = false;
  bool wasted_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_CLIPPED_GRADIENTS_H_
