// Facts "opt.grads_cleared_since", "step.backwards" and learning rates: what
// happened to each optimizer since its last step.
//
// Inputs: backwards, ends of steps, zero_grad calls, gradients that are gone
// (grad_clear), recorded learning rates. Unknown where records are missing
// since the last step; clears also where a step was not sampled, for what was
// cleared by hand in it was seen by nobody. A learning rate is as last
// recorded, for it is recorded when it changes; unknown before that and after
// missing records.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_
#define TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_

#include <cstdint>
#include <map>
#include <optional>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/grad_scaling.h"
#include "invariants/facts/tri.h"
#include "invariants/facts/variable_states.h"

namespace traincheck {

class OptimizerBooks final : public FactTracker {
 public:
  // `variables` take over an event before this object does; `scaling` is
  // notified of what was cleared by hand. All must outlive it.
  OptimizerBooks(const FactInputs* inputs, const VariableStates* variables,
                 GradScaling* scaling)
      : FactTracker(inputs), variables_(*variables), scaling_(*scaling) {}

  void OnCallBegin(const Call& call) override;
  void AfterCall(const Call& call, CallOutcome outcome) override;
  void OnState(const StateEvent& event) override;
  void OnScalar(const ScalarEvent& event) override;
  void OnGap() override;

  // Of a parameter group, when its optimizer's step began; nullopt: not known.
  std::optional<double> LearningRate(uint32_t optimizer, uint32_t group) const;
  // Since the optimizer's last step; nullopt: not known.
  std::optional<uint64_t> BackwardsSince(uint32_t optimizer) const;
  // Were its gradients cleared since its last step, by zero_grad or by hand?
  // Unknown: nobody looked, or it may have been in a step that nobody saw.
  Tri ClearedSince(uint32_t optimizer) const;
  // Was there a backward since its last step of which no gradients were
  // recorded?
  bool MissedBackwardSince(uint32_t optimizer) const;

  void Fields(Archive& archive) override {
    archive(books_, backwards_, missed_backwards_);
  }

 private:
  // Of one optimizer; counts are those at its last step.
  struct Book {
    uint64_t backwards_before = 0;
    bool cleared = false;
    bool maybe_cleared = false;
    uint64_t missed_before = 0;  // backwards
    uint64_t gaps_before = 0;
    std::map<uint32_t, double> learning_rates;  // by group, as last recorded

    void Fields(Archive& archive) {
      archive(backwards_before, cleared, maybe_cleared, missed_before,
              gaps_before, learning_rates);
    }
  };

  void Backward();
  void ZeroGrad(uint32_t object);
  // A gradient that was there at the last step is not any more; not `sure`:
  // it may have been there.
  void ClearByState(uint32_t variable, bool sure);
  // Are records missing since the last step of the optimizer?
  bool HasGapSince(uint32_t optimizer) const;
  // An empty one where nothing was recorded of the optimizer.
  const Book& Find(uint32_t optimizer) const;

  const VariableStates& variables_;
  GradScaling& scaling_;
  std::map<uint32_t, Book> books_;  // by optimizer
  uint64_t backwards_ = 0;
  uint64_t missed_backwards_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_
