#include "invariants/facts/variable_states.h"

#include "invariants/trace/call_contexts.h"

namespace traincheck {

void VariableStates::OnCallBegin(const Call& call) {
  if (call.function && call.function->category.text() == "load_state_dict") {
    // Not all models are known of which parts are loaded.
    for (auto& [id, state] : states_) state.MayBeLoaded();
  }
  if (!IsOptimizerStep(call)) return;
  const Optimizer* optimizer = inputs().ownership.Find(call.object);
  if (!optimizer) return;
  // Also of one without a record yet: its first one may be that of this step.
  for (const HeldVariable& held : optimizer->held) {
    states_[held.variable].BeginStep();
  }
}

void VariableStates::AfterCall(const Call& call, CallOutcome outcome) {
  if (!IsOptimizerStep(call)) return;
  // The gradient of a variable that no optimizer holds is for no step in
  // particular: every step ends what was noted of it.
  for (auto& [id, state] : states_) {
    if (!inputs().ownership.IsHeld(id)) state.EndStep();
  }
  const Optimizer* optimizer = inputs().ownership.Find(call.object);
  if (!optimizer) return;
  for (const HeldVariable& held : optimizer->held) {
    states_[held.variable].EndStep();
  }
}

void VariableStates::OnState(const StateEvent& event) {
  VariableState& state = states_[event.variable_id];
  const bool was_written = state.forward_writes();
  state.Apply(event);
  if (event.variable->kind == VariableKind::kBuffer && !was_written &&
      state.forward_writes()) {
    written_by_forwards_.insert(event.variable->ClassRole());
  }
}

void VariableStates::OnStatistics(const StatisticsEvent& event) {
  const auto found = states_.find(event.variable_id);
  if (found != states_.end()) found->second.Apply(event);
}

// A first step takes its parameters as it finds them: what was done to them
// before (initialisation by hand) overwrites nothing.
void VariableStates::OnMark(const MarkEvent& mark) {
  // The mark stands where a step begins, and its value is the number of steps
  // before: here none.
  if (mark.kind == MarkKind::kOptimizerSteps && mark.value == 0) {
    const Optimizer* optimizer = inputs().ownership.Find(mark.object);
    if (!optimizer) return;
    for (const HeldVariable& held : optimizer->held) {
      states_[held.variable].OptimizerIsNew();
    }
    return;
  }
  if (mark.kind != MarkKind::kCaptureMode) return;
  // From here on changes are not recorded, as after a gap.
  if (!inputs().recorded.whole()) OnGap();
}

void VariableStates::OnGap() {
  for (auto& [id, state] : states_) state.Forget();
}

const VariableState* VariableStates::Find(uint32_t variable) const {
  const auto found = states_.find(variable);
  return found == states_.end() ? nullptr : &found->second;
}

bool VariableStates::IsWrittenByForwards(uint32_t variable) const {
  const VariableInfo* info = inputs().definitions.Variable(variable);
  return info && info->kind == VariableKind::kBuffer &&
         written_by_forwards_.count(info->ClassRole()) != 0;
}

void VariableStates::Fields(Archive& archive) {
  archive(written_by_forwards_, states_);
}

}  // namespace traincheck
