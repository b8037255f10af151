// Facts "opt.grads_cleared_since", "step.backwards", "opt.rates_ended",
// "opt.counts_on" and learning rates: what happened to each optimizer since its
// last step.
//
// Inputs: backwards, ends of steps, zero_grad calls, gradients that are gone
// (grad_clear) or are other tensors than before, recorded learning rates.
// Unknown where records are missing since the last step; clears also where a
// step was not sampled, for what was cleared by hand in it was seen by nobody.
// A learning rate is as last recorded, for it is recorded when it changes;
// unknown before that and after missing records.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_
#define TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <set>

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

  void OnDefinition(RecordType type, uint32_t id) override;
  void OnCallBegin(const Call& call) override;
  void AfterCall(const Call& call, CallOutcome outcome) override;
  void OnState(const StateEvent& event) override;
  void OnScalar(const ScalarEvent& event) override;
  void OnGap() override;

  // Of a parameter group, when its optimizer's step began; nullopt: not known.
  std::optional<double> LearningRate(uint32_t optimizer, uint32_t group) const;
  // Decays by parameter group, as far as they are known.
  const std::map<uint32_t, double>& WeightDecays(uint32_t optimizer) const {
    return Find(optimizer).weight_decays;
  }
  // Does the optimizer keep some vectors (biases, most often) of this model
  // from decay, while it lets others decay? Single numbers (a temperature) are
  // no vectors, and learnt weights of losses, a model of their own, say
  // nothing.
  bool SparesVectors(uint32_t optimizer, uint32_t root) const;
  // Were its rates all 0 at its last `steps` steps, after one had not been?
  // nullopt: none ever was. Unknown where records are missing that late.
  std::optional<Tri> WithoutRateFor(uint32_t optimizer, uint64_t steps) const;
  // Its counter of steps is exact up to 2 to the power of this; nullopt: it has
  // none yet, or not known.
  std::optional<double> CounterBits(uint32_t optimizer) const;
  // Names of its models that were tied where they came from, and were two
  // tensors at its first step; nullopt: none was.
  std::optional<double> TiesLost(uint32_t optimizer) const;
  // How often in a row a scheduler was stepped while other optimizers than its
  // own stepped; nullopt: there is no scheduler, or not known.
  std::optional<double> ScheduleIdle(uint32_t optimizer) const;
  // Did one of its schedulers move by more than one before each of its last
  // `steps` steps? nullopt: it has none, or not known.
  std::optional<Tri> FastScheduleFor(uint32_t optimizer, uint64_t steps) const;
  // Since the optimizer's last step; nullopt: not known.
  std::optional<uint64_t> BackwardsSince(uint32_t optimizer) const;
  // Were its gradients cleared since its last step, by zero_grad or by hand?
  // Unknown: nobody looked, or it may have been in a step that nobody saw.
  Tri ClearedSince(uint32_t optimizer) const;
  // Was there a backward since its last step of which no gradients were
  // recorded?
  bool MissedBackwardSince(uint32_t optimizer) const;

  void Fields(Archive& archive) override;

 private:
  // Steps in a row at which something was so, up to the last.
  struct Streak {
    uint64_t length = 0;
    bool whole = true;  // it began after the last missing records

    void Add(bool so) {
      length = so ? length + 1 : 0;
      whole |= !so;
    }
    void OnGap() {
      length = 0;
      whole = false;
    }
    void Fields(Archive& archive);
  };

  // Of one optimizer; counts are those at its last step.
  struct Book {
    uint64_t backwards_before = 0;
    bool cleared = false;
    bool maybe_cleared = false;
    uint64_t missed_before = 0;  // backwards
    uint64_t gaps_before = 0;
    std::map<uint32_t, double> learning_rates;  // by group, as last recorded
    std::map<uint32_t, double> weight_decays;   // likewise
    bool had_rate = false;                      // some step had one above 0
    Streak without_rate;
    // 1: at its last step it had other tensors than at the one before.
    std::optional<double> grads_replaced;
    std::optional<double> counter_bits;
    std::optional<double> ties_lost;
    std::optional<double> schedule_idle;   // steps, as last recorded
    std::optional<double> schedule_moved;  // likewise
    Streak moved_often;                    // by more than 1

    void Fields(Archive& archive);
  };

  void Backward();
  static void CountRates(Book* book);
  static Tri IsAsLong(const Streak& streak, uint64_t steps);
  static void Keep(const ScalarEvent& event, Book* book);
  void ZeroGrad(uint32_t object);
  // A gradient that was there at the last step is not any more; not `sure`:
  // it may have been there.
  void ClearByState(uint32_t variable, bool sure);
  std::set<uint32_t> RootsOfSparedVectors(uint32_t optimizer) const;
  // Are records missing since the last step of the optimizer?
  bool HasGapSince(uint32_t optimizer) const;
  // An empty one where nothing was recorded of the optimizer.
  const Book& Find(uint32_t optimizer) const;

  const VariableStates& variables_;
  GradScaling& scaling_;
  std::map<uint32_t, Book> books_;  // by optimizer
  uint64_t backwards_ = 0;
  uint64_t missed_backwards_ = 0;
  // By optimizer, as asked for since its decays or any hold have changed.
  mutable std::map<uint32_t, std::set<uint32_t>> spares_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_OPTIMIZER_BOOKS_H_
