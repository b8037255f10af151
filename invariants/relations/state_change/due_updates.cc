#include "invariants/relations/state_change/due_updates.h"

#include <algorithm>

namespace traincheck {

void DueUpdates::OnStepClosed(const ProcessFacts& facts) {
  for (const auto& [key, variables] : facts.definitions().holds()) {
    const uint32_t optimizer = key.first;
    const auto now = facts.clock().OptimizerSteps(optimizer);
    std::optional<uint64_t>& before = steps_[optimizer];
    stepped_[optimizer] = now && before
                              ? ToTri(*now > *before)
                              : (now && *now > 0 ? Tri::kYes : Tri::kUnknown);
  }
  for (auto& [optimizer, steps] : steps_) {
    steps = facts.clock().OptimizerSteps(optimizer);
  }
}

Tri DueUpdates::IsDue(const ProcessFacts& facts, uint32_t variable) const {
  bool held = false;
  Tri due = Tri::kNo;
  for (const auto& [key, variables] : facts.definitions().holds()) {
    const auto& [optimizer, group] = key;
    if (std::find(variables.begin(), variables.end(), variable) ==
        variables.end()) {
      continue;
    }
    held = true;
    const auto stepped = stepped_.find(optimizer);
    const Tri step =
        stepped == stepped_.end() ? Tri::kUnknown : stepped->second;
    if (step == Tri::kNo) continue;
    const auto rate = facts.LearningRate(optimizer, group);
    if (rate && *rate == 0) continue;
    if (step == Tri::kYes && rate) return Tri::kYes;
    // Another optimizer may hold it as well, and be sure.
    due = Tri::kUnknown;
  }
  return held ? due : Tri::kYes;
}

}  // namespace traincheck
