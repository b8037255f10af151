#include "invariants/facts/frozen_modes.h"

#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

void FrozenModes::OnCallBegin(const Call& call) {
  if (!HasCategory(call, CallCategory::kForward)) return;
  if (call.Is(kRootModuleCall)) {
    const bool trains = call.Is(kModuleTraining) && call.Is(kGradEnabled) &&
                        !call.Is(kInsideBackward);
    // A root says for all calls of its thread below it, up to the next root.
    if (trains) {
      training_roots_.insert(call.ring);
    } else {
      training_roots_.erase(call.ring);
    }
    return;
  }
  if (!IsInTraining(call)) return;
  if (!call.Is(kModuleTraining)) {
    // Whether it is frozen, and so put there on purpose, shows at the next
    // step. A call in evaluation mode also takes back what was found of
    // training mode before.
    candidates_.insert(call.object);
    training_.erase(call.object);
  } else if (evaluating_.contains(call.object)) {
    // It may have been unfrozen since the last step: see the header.
    doubtful_.insert(call.object);
  }
}

void FrozenModes::AfterCall(const Call& call, CallOutcome outcome) {
  if (!IsOptimizerStep(call)) return;
  // Only now it is known what was frozen while these calls were made: see the
  // header.
  for (const uint32_t module : candidates_) {
    if (IsFrozen(module)) evaluating_.insert(module);
  }
  for (const uint32_t module : doubtful_) {
    if (IsFrozen(module)) training_.insert(module);
  }
  candidates_.clear();
  doubtful_.clear();
}

void FrozenModes::OnGap() {
  // What was found of modules before (evaluating_, training_) stays true.
  training_roots_.clear();
  candidates_.clear();
  doubtful_.clear();
}

bool FrozenModes::IsInTraining(const Call& call) const {
  return call.object != 0 && call.Is(kGradEnabled) &&
         !call.Is(kInsideBackward) && training_roots_.count(call.ring) > 0;
}

bool FrozenModes::Concerns(const Call& call) const {
  if (!IsInTraining(call) || !evaluating_.contains(call.object)) return false;
  // A call in training mode counts only if an earlier step has found the module
  // frozen in spite of such a call.
  const bool is_doubtful =
      call.Is(kModuleTraining) && !training_.contains(call.object);
  return !is_doubtful && IsFrozen(call.object);
}

const FrozenModes::Parameters& FrozenModes::ParametersOf(uint32_t root) const {
  // Made anew when it is next asked for, so that the many definitions of a new
  // model cost one pass.
  if (stale_) {
    stale_ = false;
    parameters_.clear();
    for (const auto& [id, info] : inputs().definitions.variables()) {
      if (info.kind != VariableKind::kParameter) continue;
      parameters_[info.root][info.name] = id;
    }
  }
  return parameters_[root];
}

// What nobody holds has no records at steps: its definition says it.
bool FrozenModes::IsTrainable(uint32_t variable) const {
  const VariableState* state = variables_.Find(variable);
  if (state && state->trainable() != Tri::kUnknown) {
    return state->trainable() == Tri::kYes;
  }
  return inputs().definitions.Variable(variable)->trainable;
}

bool FrozenModes::IsFrozen(uint32_t module) const {
  const ObjectInfo* object = inputs().definitions.Object(module);
  // A root is a whole model, not a part of one.
  if (!object || object->root == 0) return false;
  const std::string prefix = absl::StrCat(object->path, ".");
  const Parameters& all = ParametersOf(object->root);
  // Names are in order, so the parameters below the module are one range.
  const auto first = all.lower_bound(prefix);
  auto one = first;
  for (; one != all.end() && absl::StartsWith(one->first, prefix); ++one) {
    if (IsTrainable(one->second)) return false;
  }
  // Without parameters (an activation) there is nothing that could be frozen.
  return one != first;
}

void FrozenModes::Fields(Archive& archive) {
  archive(training_roots_, candidates_, evaluating_, doubtful_, training_);
}

}  // namespace traincheck
