// Facts of a call, known when it begins.
#include "invariants/facts/fact.h"

namespace traincheck {

namespace {

FactValue Flag(const FactSubject& subject, CallFlag flag) {
  if (!subject.call) return {};
  return subject.call->Is(flag);
}

FactValue Stage(const FactSubject& subject) {
  if (!subject.call) return {};
  return std::string(subject.facts->stage());
}

FactValue ModuleTraining(const FactSubject& subject) {
  if (!subject.call || !HasCategory(*subject.call, CallCategory::kForward))
    return {};
  return subject.call->Is(kModuleTraining);
}

FactValue IsRoot(const FactSubject& subject) {
  if (!subject.call || !HasCategory(*subject.call, CallCategory::kForward))
    return {};
  return subject.call->Is(kRootModuleCall);
}

FactValue GradMode(const FactSubject& subject) {
  return Flag(subject, kGradEnabled);
}

FactValue InsideBackward(const FactSubject& subject) {
  return Flag(subject, kInsideBackward);
}

}  // namespace

const std::vector<Fact>& CallFacts() {
  static const auto* const kFacts = new std::vector<Fact>{
      {"call.stage", FactType::kText, FactState::kNone, "the stage",
       "outside calls", Stage},
      {"call.module_training", FactType::kBool, FactState::kNone,
       "the module called is in training mode", "for calls of no module",
       ModuleTraining},
      {"call.is_root", FactType::kBool, FactState::kNone,
       "no module call encloses it", "for calls of no module", IsRoot},
      {"ctx.grad_mode", FactType::kBool, FactState::kNone,
       "gradients are enabled", "outside calls", GradMode},
      {"call.inside_backward", FactType::kBool, FactState::kNone,
       "it runs inside a backward", "outside calls", InsideBackward},
  };
  return *kFacts;
}

}  // namespace traincheck
