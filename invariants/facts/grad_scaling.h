// Facts "grad.scaled" and "backward.scale": are the gradients of an optimizer
// multiplied by the scale of a GradScaler?
//
// Type: bool by optimizer; number. Inputs: what torch.amp.GradScaler is asked
// to do. Gradients are scaled from the backward of a loss that went through
// GradScaler.scale (a disabled scaler gives it back as it is) until they are
// unscaled or cleared; in a call of GradScaler.step the scaler sees to it, as
// fused optimizers take the scale with them. Unknown where a backward may have
// been scaled unseen: calls of the scaler were not recorded (no plan names
// them, a step that was not sampled, missing records), or did not tell their
// tensors. Unknown, too, where the scaled backward may have been of another
// model: a backward of another loss came as well, or the optimizer was not
// there yet.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_GRAD_SCALING_H_
#define TRAINCHECK_INVARIANTS_FACTS_GRAD_SCALING_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class GradScaling final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnDefinition(RecordType type, uint32_t id) override;
  void OnCallBegin(const Call& call) override;
  void OnCallEnd(const Call& call) override;
  void OnScalar(const ScalarEvent& event) override;
  // A loss may have been scaled, an optimizer's gradients unscaled.
  void OnGap() override;
  // The gradients of this optimizer were cleared.
  void OnCleared(uint32_t optimizer) { unscaled_[optimizer] = ++now_; }

  // Has a scaled backward been seen?
  bool used() const { return scaled_ > 0; }
  // Are the gradients of this optimizer scaled, for a call that begins on this
  // thread?
  Tri Scaled(uint32_t ring, uint32_t optimizer) const;
  // The scale after the last update; nullopt: none yet, or kept on a GPU.
  std::optional<double> scale() const { return scale_; }

  void Fields(Archive& archive) override;

 private:
  enum class Method : uint8_t { kScale, kUnscale, kStep };
  struct Thread {
    Tri scaled_loss = Tri::kNo;  // since the last backward
    uint32_t open_steps = 0;     // of scalers
    void Fields(Archive& archive);
  };

  Thread& Find(uint32_t ring);
  void Backward(Thread* thread);
  void ZeroGrad(uint32_t object);
  bool IsRecorded() const;

  std::map<uint32_t, Method> methods_;  // by function
  std::map<uint32_t, Thread> threads_;  // by ring
  bool missed_ = false;  // threads that are new may have scaled a loss
  // Times, in events of this class.
  std::map<uint32_t, uint64_t> unscaled_;  // or cleared, by optimizer
  std::map<uint32_t, uint64_t> made_;      // by optimizer
  uint64_t now_ = 0;
  uint64_t scaled_ = 0;         // last scaled backward
  uint64_t plain_ = 0;          // last that was none
  uint64_t doubtful_ = 0;       // last that may have been one
  uint64_t some_unscaled_ = 0;  // of an optimizer that is not known
  std::optional<double> scale_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_GRAD_SCALING_H_
