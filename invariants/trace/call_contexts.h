// What surrounds the calls of each thread: open optimizer steps and
// checkpointed regions, and the stage that the user named. Says whether a call
// belongs to training before it is known what comes of it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_CALL_CONTEXTS_H_
#define TRAINCHECK_INVARIANTS_TRACE_CALL_CONTEXTS_H_

#include <cstdint>
#include <map>

#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

inline bool HasCategory(const Call& call, CallCategory::Number category) {
  return call.function && call.function->category.number() == category;
}
inline bool IsOptimizerStep(const Call& call) {
  return HasCategory(call, CallCategory::kOptimizerStep) && call.Is(kOutermost);
}
inline bool IsRootForward(const Call& call) {
  return HasCategory(call, CallCategory::kForward) && call.Is(kRootModuleCall);
}

// Does it count as a call of its category? A backward calls itself, a step may
// call that of its base class.
inline bool OpensWindow(const Call& call) {
  const bool once = HasCategory(call, CallCategory::kBackward) ||
                    HasCategory(call, CallCategory::kOptimizerStep) ||
                    HasCategory(call, CallCategory::kZeroGrad);
  return !once || call.Is(kOutermost);
}

class CallContexts {
 public:
  void OnCallBegin(const Call& call) {
    if (IsOptimizerStep(call)) ++threads_[call.ring].open_steps;
    if (IsTrainingCheckpoint(call)) ++threads_[call.ring].open_checkpoints;
  }

  void OnCallEnd(const Call& call) {
    if (!IsOptimizerStep(call) && !IsTrainingCheckpoint(call)) return;
    Thread& thread = threads_[call.ring];
    uint32_t& open = IsOptimizerStep(call) ? thread.open_steps  //
                                           : thread.open_checkpoints;
    if (open > 0) --open;
  }

  void OnMark(const MarkEvent& mark) {
    if (mark.kind != MarkKind::kUserStage) return;
    const bool known = mark.value <= uint64_t{kMaxUserStage};
    threads_[mark.ring].stage =
        known ? static_cast<UserStage>(mark.value) : UserStage::kNone;
  }

  // A stage that is still named is named again when a step has closed.
  void OnGap() {
    for (auto& [ring, thread] : threads_) thread.stage = UserStage::kNone;
  }

  // Is this call made where gradients are wanted? Reentrant checkpointing runs
  // its forward without them.
  bool Trains(const Call& call) const {
    const Thread thread = Find(call.ring);
    if (thread.stage != UserStage::kNone) {
      return thread.stage == UserStage::kTraining;
    }
    return call.Is(kGradEnabled) || thread.open_checkpoints > 0;
  }
  // As above, for code of that thread outside all calls.
  bool Trains(uint32_t ring) const {
    const UserStage stage = Find(ring).stage;
    return stage == UserStage::kNone || stage == UserStage::kTraining;
  }

  bool InsideStep(uint32_t ring) const { return Find(ring).open_steps > 0; }
  UserStage user_stage(uint32_t ring) const { return Find(ring).stage; }

  void Fields(Archive& archive) { archive(threads_); }

 private:
  struct Thread {
    uint32_t open_steps = 0;
    uint32_t open_checkpoints = 0;  // called with gradients enabled
    UserStage stage = UserStage::kNone;

    void Fields(Archive& archive) {
      archive(open_steps, open_checkpoints, stage);
    }
  };

  static bool IsTrainingCheckpoint(const Call& call) {
    return HasCategory(call, CallCategory::kCheckpoint) &&
           call.Is(kGradEnabled);
  }

  Thread Find(uint32_t ring) const {
    const auto found = threads_.find(ring);
    return found == threads_.end() ? Thread() : found->second;
  }

  std::map<uint32_t, Thread> threads_;  // by ring
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_CALL_CONTEXTS_H_
