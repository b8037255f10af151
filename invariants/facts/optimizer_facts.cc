// Facts of an optimizer and of the span since its last step.
#include "invariants/facts/fact.h"

namespace traincheck {

namespace {

FactValue HasStepped(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  if (!steps) return {};
  return *steps > 0;
}

FactValue GradsClearedSince(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const bool cleared = subject.facts->ClearedSince(subject.optimizer);
  if (!cleared && subject.facts->MayBeClearedSince(subject.optimizer))
    return {};
  return cleared;
}

FactValue Backwards(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  return static_cast<double>(subject.facts->BackwardsSince(subject.optimizer));
}

}  // namespace

const std::vector<Fact>& OptimizerFacts() {
  static const auto* const kFacts = new std::vector<Fact>{
      {"opt.has_stepped", FactType::kBool, FactState::kNone,
       "the optimizer has stepped before", "after missing records", HasStepped},
      {"opt.grads_cleared_since", FactType::kBool, FactState::kGradients,
       "gradients were cleared since its last step",
       "without an optimizer, and where a backward was not sampled",
       GradsClearedSince},
      {"step.backwards", FactType::kNumber, FactState::kNone,
       "backwards since its last step", "without an optimizer", Backwards},
  };
  return *kFacts;
}

}  // namespace traincheck
