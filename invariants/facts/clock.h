// Facts "clock": step, epoch and the optimizers' own clocks of one process.
//
// Type: integers from 0. Inputs: the skeleton (fetches, training root
// forwards, backwards, gradient clears, optimizer steps, iterator ends, exit).
// Known from the start; unknown after a gap until the agent's next StepClosed
// mark says where its own count stands.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_CLOCK_H_
#define TRAINCHECK_INVARIANTS_FACTS_CLOCK_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/facts/events.h"
#include "invariants/snapshot/archive.h"
#include "proto/step_rule.h"

namespace traincheck {

class Clock {
 public:
  void OnCallBegin(const Call& call);
  // An optimizer's clock advances when its outermost step has ended.
  void OnCallEnd(const Call& call);
  void OnMark(const MarkEvent& mark);
  void OnGap() { synced_ = false; }

  // Number of the open step.
  uint64_t step() const { return offset_ + rule_.step(); }
  // False: records were missing and step() may be behind.
  bool synced() const { return synced_; }
  // Iterator ordinal of the loader that feeds training; no loader: nullopt.
  std::optional<uint64_t> epoch() const;
  // Outermost steps that this optimizer has finished; nullopt: not known.
  std::optional<uint64_t> OptimizerSteps(uint32_t optimizer) const;
  // Steps that the agent closed at another count than this clock.
  uint64_t disagreements() const { return disagreements_; }

  void Fields(Archive& archive) {
    archive(rule_, offset_, synced_, disagreements_, optimizers_, open_steps_,
            iterators_, fetched_from_, training_loader_);
  }

 private:
  struct OptimizerClock {
    uint64_t steps = 0;
    bool known = true;
    void Fields(Archive& archive) { archive(steps, known); }
  };
  void Resync(uint64_t next_step);
  // Inside a step (a closure) and inside a backward (recomputation) forwards,
  // fetches and clears are parts of the step.
  bool Counts(const Call& call) const;

  StepRule rule_;
  uint64_t offset_ = 0;
  bool synced_ = true;
  uint64_t disagreements_ = 0;
  std::map<uint32_t, OptimizerClock> optimizers_;
  std::map<uint32_t, uint32_t> open_steps_;  // by ring

  // Iterators created, by loader; the loader of the last fetch; the one whose
  // fetch a backward followed.
  std::map<uint32_t, uint64_t> iterators_;
  uint32_t fetched_from_ = 0;
  uint32_t training_loader_ = 0;
};

// Categories of calls that facts and relations know by name.
inline bool HasCategory(const Call& call, const char* category) {
  return call.function && call.function->category == category;
}
inline bool IsOptimizerStep(const Call& call) {
  return HasCategory(call, "optimizer_step") && call.Is(kOutermost);
}
inline bool IsTrainingRootForward(const Call& call) {
  return HasCategory(call, "forward") && call.Is(kRootModuleCall) &&
         call.Is(kGradEnabled) && !call.Is(kInsideBackward);
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_CLOCK_H_
