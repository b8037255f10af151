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
// Unknown after missing records until the next root call or backward of the
// thread and, because the user may have named a stage, until a step has closed:
// then the agent says again what he named.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_STAGE_H_
#define TRAINCHECK_INVARIANTS_TRACE_STAGE_H_

#include <map>

#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class StageTracker {
 public:
  enum class Stage : uint8_t { kInit, kTraining, kEvaluation, kRecomputation };

  // REQUIRES: `contexts` have seen the event.
  void OnCallBegin(const Call& call, const CallContexts& contexts) {
    Thread& thread = Enter(call.ring);
    thread.named = contexts.user_stage(call.ring);
    if (HasCategory(call, CallCategory::kBackward)) {
      thread.stage = Stage::kTraining;
      thread.known = true;
    }
    if (!IsRootForward(call)) return;
    thread.before = thread.stage;
    thread.known_before = thread.known;
    // A checkpointed region around it may have been entered with gradients.
    thread.known =
        thread.named_known && (!call.orphan || contexts.Trains(call));
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
    if (mark.kind == MarkKind::kStepClosed) NamesAreKnown(mark.ring);
    if (mark.kind != MarkKind::kUserStage) return;
    Thread& thread = Enter(mark.ring);
    thread.named = contexts.user_stage(mark.ring);
    thread.names = true;
    thread.named_known = true;
  }

  void OnGap() {
    missed_ = true;
    names_known_ = false;
    for (auto& [ring, thread] : threads_) {
      thread.known = thread.known_before = thread.named_known = false;
    }
  }

  void Fields(Archive& archive) {
    archive(threads_, current_, missed_, names_known_);
  }

  // Of the thread that the last call or stage was on; null: not known.
  const char* name() const {
    const auto found = threads_.find(current_);
    if (found == threads_.end()) return missed_ ? nullptr : "init";
    const Thread& thread = found->second;
    if (!thread.named_known) return nullptr;
    switch (thread.named) {
      case UserStage::kNone:
        break;
      case UserStage::kInit:
        return "init";
      case UserStage::kTraining:
        if (!thread.known) return nullptr;
        return thread.stage == Stage::kRecomputation ? "recomputation"
                                                     : "training";
      case UserStage::kEvaluation:
        return "evaluation";
    }
    return thread.known ? NameOf(thread.stage) : nullptr;
  }

 private:
  struct Thread {
    Stage stage = Stage::kInit;
    Stage before = Stage::kInit;  // a recomputation began
    bool over = false;            // that recomputation, as of the next event
    bool known = true;
    bool known_before = true;
    UserStage named = UserStage::kNone;
    bool names = false;  // the user has named stages on it
    bool named_known = true;
    void Fields(Archive& archive) {
      archive(stage, before, over, known, known_before, named, names,
              named_known);
    }
  };

  // Other threads do not say their names again.
  void NamesAreKnown(uint32_t ring) {
    if (names_known_) return;
    names_known_ = true;
    for (auto& [id, thread] : threads_) {
      thread.named_known |= id == ring || !thread.names;
    }
  }

  Thread& Enter(uint32_t ring) {
    current_ = ring;
    const auto [found, is_new] = threads_.try_emplace(ring);
    Thread& thread = found->second;
    if (is_new) {
      thread.known = thread.known_before = !missed_;
      thread.named_known = names_known_;
    }
    if (thread.over) {
      thread.stage = thread.before;
      thread.known = thread.known_before;
    }
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
  bool missed_ = false;  // threads that are new may be in any stage
  bool names_known_ = true;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_STAGE_H_
