#include "invariants/facts/variable_states.h"

#include <utility>

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
    At(held.variable).BeginStep();
  }
}

void VariableStates::OnDefinition(RecordType type, uint32_t id) {
  // What an optimizer held may be held by none now, with what was noted of it.
  if (type == RecordType::kHoldDef) all_may_be_open_ = true;
}

void VariableStates::AfterCall(const Call& call, CallOutcome outcome) {
  if (!IsOptimizerStep(call)) return;
  // The gradient of a variable that no optimizer holds is for no step in
  // particular: every step ends what was noted of it.
  if (std::exchange(all_may_be_open_, false)) {
    for (auto& [id, state] : states_) {
      if (!inputs().ownership.IsHeld(id)) state.EndStep();
    }
  } else {
    for (const uint32_t id : open_) {
      if (!inputs().ownership.IsHeld(id)) states_[id].EndStep();
    }
  }
  // Those that are held are ended by the steps of their own optimizers.
  open_.clear();
  const Optimizer* optimizer = inputs().ownership.Find(call.object);
  if (!optimizer) return;
  for (const HeldVariable& held : optimizer->held) {
    At(held.variable).EndStep();
  }
}

VariableState& VariableStates::At(uint32_t variable) {
  const auto [found, is_new] = states_.try_emplace(variable);
  if (is_new) learned_.push_back(variable);
  return found->second;
}

// REQUIRES: the state is at its place in states_, and learns something next.
void VariableStates::Learns(uint32_t variable, const VariableState& state) {
  if (state.is_forgotten()) learned_.push_back(variable);
}

void VariableStates::OnState(const StateEvent& event) {
  VariableState& state = At(event.variable_id);
  Learns(event.variable_id, state);
  const bool was_written = state.forward_writes();
  state.Apply(event);
  if (state.is_open()) open_.insert(event.variable_id);
  if (event.variable->kind == VariableKind::kBuffer && !was_written &&
      state.forward_writes()) {
    written_by_forwards_.insert(event.variable->ClassRole());
  }
}

void VariableStates::OnStatistics(const StatisticsEvent& event) {
  const auto found = states_.find(event.variable_id);
  if (found == states_.end()) return;
  Learns(event.variable_id, found->second);
  found->second.Apply(event);
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
      At(held.variable).OptimizerIsNew();
    }
    return;
  }
  if (mark.kind != MarkKind::kCaptureMode) return;
  // From here on changes are not recorded, as after a gap.
  if (!inputs().recorded.whole()) OnGap();
}

void VariableStates::OnGap() {
  for (const uint32_t id : learned_) states_[id].Forget();
  learned_.clear();
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
  if (!archive.reading()) return;
  // What the two lists leave out follows from what is not saved.
  all_may_be_open_ = true;
  open_.clear();
  learned_.clear();
  for (const auto& [id, state] : states_) learned_.push_back(id);
}

}  // namespace traincheck
