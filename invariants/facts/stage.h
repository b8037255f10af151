// Fact "call.stage": training, evaluation, recomputation or init.
//
// Type: string. Inputs: root module calls, backwards. A root module call made
// with gradients enabled is training until its output turns out to have no
// grad_fn; without gradients it is evaluation; inside a backward it is
// recomputation. Code between calls has the stage of the last root call;
// before the first it is init. A module's own `training` flag plays no part:
// "evaluation with dropout on" must not call itself training. Always known.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_STAGE_H_
#define TRAINCHECK_INVARIANTS_FACTS_STAGE_H_

#include "invariants/facts/clock.h"
#include "invariants/facts/events.h"
#include "invariants/snapshot/archive.h"

namespace traincheck {

class StageTracker {
 public:
  enum class Stage { kInit, kTraining, kEvaluation, kRecomputation };

  void OnCallBegin(const Call& call) {
    if (HasCategory(call, "backward")) stage_ = Stage::kTraining;
    if (!IsRoot(call)) return;
    before_recomputation_ = stage_;
    if (call.Is(kInsideBackward)) {
      stage_ = Stage::kRecomputation;
    } else {
      stage_ = call.Is(kGradEnabled) ? Stage::kTraining : Stage::kEvaluation;
    }
  }

  void OnCallEnd(const Call& call, CallOutcome outcome, uint8_t output) {
    if (!IsRoot(call)) return;
    if (stage_ == Stage::kRecomputation) {
      stage_ = before_recomputation_;
      return;
    }
    const bool no_grad_fn = outcome == CallOutcome::kReturned &&
                            (output & kOutputSearched) &&
                            !(output & kOutputHasGradFn);
    if (no_grad_fn) stage_ = Stage::kEvaluation;
  }

  void Fields(Archive& archive) { archive(stage_, before_recomputation_); }

  const char* name() const {
    switch (stage_) {
      case Stage::kInit:
        return "init";
      case Stage::kTraining:
        return "training";
      case Stage::kEvaluation:
        return "evaluation";
      case Stage::kRecomputation:
        return "recomputation";
    }
    return "init";
  }

 private:
  static bool IsRoot(const Call& call) {
    return HasCategory(call, "forward") && call.Is(kRootModuleCall);
  }

  Stage stage_ = Stage::kInit;
  Stage before_recomputation_ = Stage::kInit;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_STAGE_H_
