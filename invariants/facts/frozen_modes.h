// Fact "call.frozen_as_before": is a part of a model that does not train called
// in evaluation mode, if it was so before?
//
// Inputs: calls of modules with gradients, below a root in training mode, and
// their training flags; ends of steps. A part of which all parameters are
// frozen and that was in evaluation mode while the model around it trained was
// put there on purpose: its statistics and its dropout are to stay still.
// Whether its parameters are frozen is recorded around steps: the first call in
// training mode may be that of a part that was unfrozen since the last step,
// and says nothing until the step behind it.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_FROZEN_MODES_H_
#define TRAINCHECK_INVARIANTS_FACTS_FROZEN_MODES_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/variable_states.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class FrozenModes final : public FactTracker {
 public:
  // `variables` must outlive this object.
  FrozenModes(const FactInputs* inputs, const VariableStates* variables)
      : FactTracker(inputs), variables_(*variables) {}

  void OnDefinition(RecordType type, uint32_t id) override {
    stale_ |= type == RecordType::kVariableDef;
  }
  void OnCallBegin(const Call& call) override;
  void AfterCall(const Call& call, CallOutcome outcome) override;
  void OnGap() override;

  // Is this the call of a part that is known to have been in evaluation mode
  // while its model trained, and that is still frozen? In training mode: was it
  // so in a step before, too?
  bool Concerns(const Call& call) const;

  void Fields(Archive& archive) override;

 private:
  // Is the call part of a training forward, below its root?
  bool IsInTraining(const Call& call) const;
  // Are all parameters of the module and below frozen, and is there one?
  bool IsFrozen(uint32_t module) const;
  bool IsTrainable(uint32_t variable) const;

  using Parameters = std::map<std::string, uint32_t>;  // by name
  const Parameters& ParametersOf(uint32_t root) const;

  const VariableStates& variables_;
  mutable bool stale_ = true;
  mutable std::map<uint32_t, Parameters> parameters_;  // by root
  // Threads whose outermost module was called with gradients, in training mode.
  std::set<uint32_t> training_roots_;
  std::set<uint32_t> candidates_;  // modules in evaluation mode since a step
  std::set<uint32_t> evaluating_;  // those that were so when one ended
  // Of these, called in training mode since a step, and found to be frozen at
  // the step behind that.
  std::set<uint32_t> doubtful_;
  std::set<uint32_t> training_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_FROZEN_MODES_H_
