// Facts "clock": step, epoch and the optimizers' own clocks of one process.
//
// Type: integers from 0. Inputs: the skeleton (fetches, training root
// forwards, backwards, gradient clears, optimizers made, steps made and
// skipped, iterator ends, exit) and the user's own steps and stages. Known
// from the start, by the rule that the agent too goes by. What the rule would
// need to know is lost with the first gap: from there on the agent's marks tell
// (StepClosed, OptimizerSteps), and until the next of them it is unknown.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_TRACE_CLOCK_H_
#define TRAINCHECK_INVARIANTS_TRACE_CLOCK_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/epochs.h"
#include "invariants/trace/events.h"
#include "proto/step_rule.h"

namespace traincheck {

class Clock {
 public:
  void OnCallBegin(const Call& call);
  // An optimizer's clock advances when its outermost step has ended.
  void OnCallEnd(const Call& call);
  void OnMark(const MarkEvent& mark);
  void OnGap();

  // Number of the open step.
  uint64_t step() const { return told_ ? *told_ : rules_.step(); }
  // False: records were missing and step() may be behind.
  bool synced() const { return synced_; }
  // nullopt: step() may be behind.
  std::optional<uint64_t> known_step() const {
    return synced_ ? std::optional<uint64_t>(step()) : std::nullopt;
  }
  // Steps that the process made, once it has ended in order; nullopt: it has
  // not, or some may be missing. One that it broke off counts if a backward
  // had begun in it.
  std::optional<uint64_t> steps_made() const;
  // Pass over the training data; no loader: nullopt.
  std::optional<uint64_t> epoch() const { return epochs_.current(); }
  // Outermost steps that this optimizer has finished; nullopt: not known.
  std::optional<uint64_t> OptimizerSteps(uint32_t optimizer) const;
  // Steps that a scaler left out, as far as they were seen.
  uint64_t SkippedSteps(uint32_t optimizer) const;
  // Steps that the agent closed at another count than this clock.
  uint64_t disagreements() const { return disagreements_; }
  const CallContexts& contexts() const { return contexts_; }

  void Fields(Archive& archive);

 private:
  struct OptimizerClock {
    uint64_t steps = 0;
    uint64_t skipped = 0;
    bool known = true;
    void Fields(Archive& archive);
  };
  OptimizerClock& Find(uint32_t optimizer);
  void OnSkeletonCall(const Call& call);
  template <typename Event>
  void Tell(uint32_t loop, const Event& event);
  void OnStepClosed(const MarkEvent& mark);
  void OnOptimizerSteps(const MarkEvent& mark);
  void Follow(uint64_t next_step);
  // Inside a step (a closure) and inside a backward (recomputation) forwards,
  // fetches and clears are parts of the step.
  bool Counts(const Call& call) const;
  // Loaders that are read without gradients feed no training.
  bool Trains(const MarkEvent& mark) const;

  StepRules rules_;
  // The mark came before the event: how it was, to see that the event closes.
  std::optional<StepRule> expected_;
  std::optional<uint64_t> told_;  // by the agent, after a gap
  bool synced_ = true;
  bool ended_ = false;        // in order
  uint64_t steps_begun_ = 0;  // up to the last in which there was a backward
  uint64_t disagreements_ = 0;
  std::map<uint32_t, OptimizerClock> optimizers_;
  CallContexts contexts_;
  Epochs epochs_;
};

inline bool IsTrainingRootForward(const Call& call) {
  return IsRootForward(call) && call.Is(kGradEnabled) &&
         !call.Is(kInsideBackward);
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_CLOCK_H_
