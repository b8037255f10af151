#include "invariants/relations/state_change/due_updates.h"

#include <utility>

#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/tri.h"

namespace traincheck {

void DueUpdates::OnStepClosed(const ProcessFacts& facts) {
  for (const auto& [key, variables] : facts.definitions().holds()) {
    const uint32_t optimizer = key.first;
    const auto now = facts.clock().OptimizerSteps(optimizer);
    std::optional<uint64_t>& before = steps_[optimizer];
    // Behind missing records the count is known again with a step of its own.
    stepped_[optimizer] = now && before
                              ? ToTri(*now > *before)
                              : (now && *now > 0 ? Tri::kYes : Tri::kUnknown);
  }
  // In a loop of its own: an optimizer comes once for each of its groups above,
  // and each time is compared with the step before.
  for (auto& [optimizer, steps] : steps_) {
    steps = facts.clock().OptimizerSteps(optimizer);
  }
}

Tri DueUpdates::IsDue(const ProcessFacts& facts, uint32_t variable) {
  // Made anew where a definition says so: to look through all optimizers for
  // each variable in each step would cost their product.
  if (std::exchange(stale_, false)) {
    holders_.clear();
    for (const auto& [key, variables] : facts.definitions().holds()) {
      for (const uint32_t held : variables) holders_[held].push_back(key);
    }
  }
  const auto holders = holders_.find(variable);
  // No optimizer holds the variable, so nothing says that it should stand
  // still.
  if (holders == holders_.end()) return Tri::kYes;
  Tri due = Tri::kNo;
  for (const auto& [optimizer, group] : holders->second) {
    const auto stepped = stepped_.find(optimizer);
    const Tri step =
        stepped == stepped_.end() ? Tri::kUnknown : stepped->second;
    // An optimizer that made no step asks nothing of what it holds (a
    // discriminator that is trained every other step).
    if (step == Tri::kNo) continue;
    const auto rate = facts.optimizer_books().LearningRate(optimizer, group);
    if (rate && *rate == 0) continue;
    if (step == Tri::kYes && rate) return Tri::kYes;
    // Another optimizer may hold it as well, and be sure.
    due = Tri::kUnknown;
  }
  return due;
}

void DueUpdates::Fields(Archive& archive) { archive(stepped_, steps_); }

}  // namespace traincheck
