// Facts of a variable, at a step of the optimizer that holds it.
#include "invariants/facts/fact.h"

namespace traincheck {

namespace {

const VariableInfo* Info(const FactSubject& subject) {
  return subject.facts->definitions().Variable(subject.variable);
}

const VariableState* State(const FactSubject& subject) {
  return subject.facts->Variable(subject.variable);
}

FactValue FromTri(Tri value) {
  if (value == Tri::kUnknown) return {};
  return value == Tri::kYes;
}

FactValue Kind(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  if (!info) return {};
  switch (info->kind) {
    case VariableKind::kParameter:
      return std::string("parameter");
    case VariableKind::kBuffer:
      return std::string("buffer");
    case VariableKind::kOptimizerState:
      return std::string("optimizer_state");
    case VariableKind::kGenerator:
      return std::string("generator");
    case VariableKind::kLoaderState:
      return std::string("loader_state");
    default:
      return {};
  }
}

FactValue Role(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  const VariableState* state = State(subject);
  if (!info || !state) return {};
  if (info->kind == VariableKind::kBuffer) return std::string("buffer");
  if (info->shadow_of != 0) return std::string("shadow copy");
  return std::string(state->trainable() ? "trainable" : "frozen");
}

FactValue Held(const FactSubject& subject) {
  if (subject.variable == 0) return {};
  return subject.facts->ownership().IsHeld(subject.variable);
}

FactValue Replicated(const FactSubject& subject) {
  if (subject.variable == 0) return {};
  return subject.facts->ownership().GroupOf(subject.variable) != nullptr;
}

FactValue GotGrad(const FactSubject& subject) {
  const VariableState* state = State(subject);
  if (!state) return {};
  const bool missed = subject.facts->MissedBackwardSince(subject.optimizer);
  if (!state->got_grad() && missed) return {};
  return state->got_grad();
}

FactValue GradPresent(const FactSubject& subject) {
  const VariableState* state = State(subject);
  return state ? FromTri(state->has_grad_at_step()) : FactValue();
}

FactValue GradZero(const FactSubject& subject) {
  const VariableState* state = State(subject);
  if (!state || state->has_grad_at_step() == Tri::kUnknown) return {};
  return state->grad_nonzero_at_step() == Tri::kNo;
}

FactValue EffectiveLr(const FactSubject& subject) {
  const auto lr = subject.facts->LearningRate(subject.optimizer, subject.group);
  return lr ? FactValue(*lr) : FactValue();
}

FactValue LrNonzero(const FactSubject& subject) {
  const auto lr = subject.facts->LearningRate(subject.optimizer, subject.group);
  return lr ? FactValue(*lr != 0) : FactValue();
}

}  // namespace

const std::vector<Fact>& VariableFacts() {
  static const auto* const kFacts = new std::vector<Fact>{
      {"var.kind", FactType::kText, FactState::kNone, "its kind",
       "without a definition", Kind},
      {"var.role", FactType::kText, FactState::kAny, "its role",
       "before its first state record", Role},
      {"var.held_by", FactType::kBool, FactState::kNone,
       "an optimizer holds it", "without a variable", Held},
      {"var.replica_group", FactType::kBool, FactState::kNone,
       "other ranks hold a replica", "without a variable", Replicated},
      {"var.got_grad", FactType::kBool, FactState::kGradients,
       "a backward gave it a non-zero gradient since the last step",
       "before its first state record, and where a backward was not sampled",
       GotGrad},
      {"grad.present", FactType::kBool, FactState::kGradients,
       "its gradient is there at the step",
       "where it was not recorded at pre_step", GradPresent},
      {"grad.zero", FactType::kBool, FactState::kGradients,
       "its gradient is zero or absent",
       "where it was not recorded at pre_step", GradZero},
      {"var.effective_lr", FactType::kNumber, FactState::kNone,
       "its learning rate", "where the optimizer's lr was not recorded",
       EffectiveLr},
      {"var.lr_nonzero", FactType::kBool, FactState::kNone,
       "its learning rate is not zero",
       "where the optimizer's lr was not recorded", LrNonzero},
  };
  return *kFacts;
}

}  // namespace traincheck
