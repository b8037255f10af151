// Facts of an optimizer and of the span since its last step.
#include "invariants/facts/fact.h"

namespace traincheck {

namespace {

FactValue StepIndex(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  return steps ? FactValue(static_cast<double>(*steps)) : FactValue();
}

FactValue HasStepped(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  if (!steps) return {};
  return *steps > 0;
}

FactValue GradsClearedSince(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  return ToFactValue(subject.facts->ClearedSince(subject.optimizer));
}

FactValue Backwards(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto backwards = subject.facts->BackwardsSince(subject.optimizer);
  return backwards ? FactValue(static_cast<double>(*backwards)) : FactValue();
}

// Without a backward since the last step nothing was trained.
bool TrainsAgain(const FactSubject& subject) {
  const Optimizer* optimizer =
      subject.facts->ownership().Find(subject.optimizer);
  return optimizer && subject.facts->training_modes().Retrains(*optimizer) &&
         subject.facts->BackwardsSince(subject.optimizer) != uint64_t{0};
}

FactValue TrainsAsBefore(const FactSubject& subject) {
  const Optimizer* optimizer =
      subject.facts->ownership().Find(subject.optimizer);
  if (!optimizer || !subject.facts->BackwardsSince(subject.optimizer)) {
    return {};
  }
  return ToFactValue(subject.facts->training_modes().AsBefore(*optimizer));
}

bool ScalesGradients(const FactSubject& subject) {
  return subject.call && subject.facts->grad_scaling().used();
}

// Where the call is not of one optimizer (clipping), of all of them.
FactValue GradScaled(const FactSubject& subject) {
  if (!subject.call) return {};
  const GradScaling& scaling = subject.facts->grad_scaling();
  const uint32_t ring = subject.call->ring;
  if (subject.optimizer != 0) {
    return ToFactValue(scaling.Scaled(ring, subject.optimizer));
  }
  FactValue all;
  for (const auto& [key, held] : subject.facts->definitions().holds()) {
    const FactValue one = ToFactValue(scaling.Scaled(ring, key.first));
    if (!IsKnown(one) || (IsKnown(all) && all != one)) return {};
    all = one;
  }
  return all;
}

FactValue BackwardScale(const FactSubject& subject) {
  const auto scale = subject.facts->grad_scaling().scale();
  return scale ? FactValue(*scale) : FactValue();
}

}  // namespace

const std::vector<Fact>& OptimizerFacts() {
  constexpr auto kOf = FactOf::kOptimizer;
  static const auto* const kFacts = new std::vector<Fact>{
      {"opt.step_index", kOf, FactType::kNumber, FactNeed::kNone,
       "the number of the optimizer's steps before", "after missing records",
       StepIndex},
      {"opt.has_stepped", kOf, FactType::kBool, FactNeed::kNone,
       "the optimizer has stepped before", "after missing records", HasStepped},
      {"opt.grads_cleared_since", kOf, FactType::kBool, FactNeed::kGradients,
       "gradients were cleared since its last step",
       "without an optimizer, and where a backward was not sampled or records "
       "are missing since then",
       GradsClearedSince},
      {"step.backwards", kOf, FactType::kNumber, FactNeed::kNone,
       "the number of backwards since its last step",
       "without an optimizer, and where records are missing since then",
       Backwards},
      {"opt.trains_as_before", kOf, FactType::kBool, FactNeed::kNone,
       "its models train in training mode, as they did before",
       "where records are missing since its last step", TrainsAsBefore,
       TrainsAgain, /*at_end=*/true},
      {"grad.scaled", kOf, FactType::kBool, FactNeed::kScaler,
       "gradients are still multiplied by a GradScaler's scale",
       "where calls of the scaler were not recorded, or optimizers differ",
       GradScaled, ScalesGradients},
      {"backward.scale", kOf, FactType::kNumber, FactNeed::kNone,
       "the scale of the GradScaler",
       "before its first update, and where it is kept on a GPU", BackwardScale},
  };
  return *kFacts;
}

}  // namespace traincheck
