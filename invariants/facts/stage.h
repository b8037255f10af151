// Fact "call.stage": training, evaluation, recomputation or init.
//
// Type: string. Inputs: root module calls, backwards, checkpointed regions, the
// user's word. A root module call made with gradients enabled, or in a region
// checkpointed with them, is training until its output turns out to have no
// grad_fn; without gradients it is evaluation; inside a backward it is
// recomputation. Code between calls has the stage of the last root call of its
// thread; before the first it is init. A stage that the user named holds on
// its thread until the user takes it back. A module's own `training` flag
// plays no part: "evaluation with dropout on" must not call itself training.
// Always known.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_STAGE_H_
#define TRAINCHECK_INVARIANTS_FACTS_STAGE_H_

#include <map>

#include "invariants/facts/call_contexts.h"
#include "invariants/facts/events.h"
#include "invariants/snapshot/archive.h"

namespace traincheck {

class StageTracker {
 public:
  enum class Stage : uint8_t { kInit, kTraining, kEvaluation, kRecomputation };

  // REQUIRES: `contexts` have seen the event.
  void OnCallBegin(const Call& call, const CallContexts& contexts) {
    Thread& thread = Enter(call.ring);
    thread.named = contexts.user_stage(call.ring);
    if (HasCategory(call, CallCategory::kBackward))
      thread.stage = Stage::kTraining;
    if (!IsRootForward(call)) return;
    thread.before = thread.stage;
    if (call.Is(kInsideBackward)) {
      thread.stage = Stage::kRecomputation;
    } else {
      thread.stage =
          contexts.Trains(call) ? Stage::kTraining : Stage::kEvaluation;
    }
  }

  void OnCallEnd(const Call& call, const CallContexts& contexts,
                 CallOutcome outcome, uint8_t output) {
    Thread& thread = Enter(call.ring);
    if (!IsRootForward(call)) return;
    if (thread.stage == Stage::kRecomputation) {
      thread.over = true;
      return;
    }
    // Without gradients the output of training has none either.
    const bool no_grad_fn =
        call.Is(kGradEnabled) && outcome == CallOutcome::kReturned &&
        (output & kOutputSearched) && !(output & kOutputHasGradFn);
    if (no_grad_fn && contexts.user_stage(call.ring) == UserStage::kNone) {
      thread.stage = Stage::kEvaluation;
    }
  }

  void OnMark(const MarkEvent& mark, const CallContexts& contexts) {
    if (mark.kind != MarkKind::kUserStage) return;
    Enter(mark.ring).named = contexts.user_stage(mark.ring);
  }

  void Fields(Archive& archive) { archive(threads_, current_); }

  // Of the thread that the last call or stage was on.
  const char* name() const {
    const auto found = threads_.find(current_);
    if (found == threads_.end()) return "init";
    const Thread& thread = found->second;
    switch (thread.named) {
      case UserStage::kNone:
        break;
      case UserStage::kInit:
        return "init";
      case UserStage::kTraining:
        return thread.stage == Stage::kRecomputation ? "recomputation"
                                                     : "training";
      case UserStage::kEvaluation:
        return "evaluation";
    }
    return NameOf(thread.stage);
  }

 private:
  struct Thread {
    Stage stage = Stage::kInit;
    Stage before = Stage::kInit;  // a recomputation began
    bool over = false;            // that recomputation, as of the next event
    UserStage named = UserStage::kNone;
    void Fields(Archive& archive) { archive(stage, before, over, named); }
  };

  Thread& Enter(uint32_t ring) {
    current_ = ring;
    Thread& thread = threads_[ring];
    if (thread.over) thread.stage = thread.before;
    thread.over = false;
    return thread;
  }

  static const char* NameOf(Stage stage) {
    switch (stage) {
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

  std::map<uint32_t, Thread> threads_;  // by ring
  uint32_t current_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_STAGE_H_
