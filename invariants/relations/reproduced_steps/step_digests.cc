#include "invariants/relations/reproduced_steps/step_digests.h"

#include <cstring>
#include <string>

#include "base/hash.h"
#include "invariants/facts/optimizer_books.h"

namespace traincheck {

namespace {

constexpr char kTorch[] = "generator.torch";

// Spreads the bits, so that sums and chains of such numbers do not cancel. The
// two arguments may be exchanged: an order shows only where results are
// chained.
uint64_t Mix(uint64_t some, uint64_t other) {
  uint64_t mixed = (some ^ other) * 0x9e3779b97f4a7c15;
  return mixed ^ (mixed >> 29);
}

// Sums of these do not depend on the order of variables.
uint64_t Named(const VariableInfo& variable, uint64_t digest) {
  return Mix(StableHash(variable.FullName()), digest);
}

std::optional<uint64_t> GradientOf(const StateEvent& event) {
  if (event.Has(kUnreadable)) return std::nullopt;
  // None and zero are told apart: optimizers leave out the one and step with
  // the other.
  if (event.Has(kGradIsNone)) return kNoGradientDigest;
  if (event.Has(kGradIsZero)) return kZeroGradientDigest;
  if (event.Has(kHasGrad)) return event.grad;
  return std::nullopt;
}

// Which optimizer it is and its rates. Numbers of objects and functions are
// left out, because each run gives its own and the digest is compared with that
// of another run.
uint64_t SettingsOf(const ProcessFacts& facts, const Call& call,
                    const Optimizer& optimizer) {
  const ObjectInfo* object = facts.definitions().Object(call.object);
  uint64_t settings = StableHash(object ? object->class_name : "");
  settings = Mix(settings, optimizer.ordinal);
  std::set<uint32_t> groups;
  for (const HeldVariable& held : optimizer.held) groups.insert(held.group);
  for (uint32_t group : groups) {
    const auto rate = facts.optimizer_books().LearningRate(call.object, group);
    uint64_t bits = 0;
    if (rate) std::memcpy(&bits, &*rate, sizeof(bits));
    settings = Mix(Mix(settings, group), bits);
  }
  return settings;
}

}  // namespace

void StepDigests::OnCallBegin(const ProcessFacts& facts, const Call& call) {
  if (!IsOptimizerStep(call)) return;
  step_ring_ = call.ring;
  step_call_ = call.number;
  weights_ = gradients_ = 0;
  with_weight_.clear();
  with_gradient_.clear();
}

void StepDigests::OnState(const ProcessFacts& facts, const StateEvent& event) {
  if (!event.variable) return;
  switch (event.variable->kind) {
    case VariableKind::kGenerator:
      return OnGenerator(event);
    case VariableKind::kLoaderState:
      // In their order: another order of the same rows is another training.
      if (rows_ != kUnread) {
        rows_ = event.Has(kHasData) ? Mix(rows_, event.data) : kUnread;
      }
      return;
    default:
      break;
  }
  if (event.point != StatePoint::kPreStep || step_call_ == 0) return;
  // Once a step, so that a record that comes twice does not count twice.
  if (event.Has(kHasData) && with_weight_.insert(event.variable_id).second) {
    weights_ += Named(*event.variable, event.data);
  }
  const auto gradient = GradientOf(event);
  if (gradient && with_gradient_.insert(event.variable_id).second) {
    gradients_ += Named(*event.variable, *gradient);
  }
}

void StepDigests::OnGenerator(const StateEvent& event) {
  const std::string name = event.variable->FullName();
  const auto known = generators_.find(name);
  const uint64_t digest = event.Has(kHasData) ? event.data : kUnread;
  if (known != generators_.end()) {
    // A generator that has another state than at first was drawn from in
    // between. One that could not be read may have been.
    if (known->second != digest) used_.insert(name);
  } else if (event.point == StatePoint::kForwardBegin) {
    generators_[name] = digest;
  }
}

std::map<std::string, uint64_t> StepDigests::UsedGenerators() const {
  std::map<std::string, uint64_t> used;
  for (const auto& [name, digest] : generators_) {
    if (name.starts_with(kTorch) || used_.contains(name)) used[name] = digest;
  }
  return used;
}

std::optional<StepDigest> StepDigests::Ended(const ProcessFacts& facts,
                                             const Call& call,
                                             CallOutcome outcome) {
  if (!IsOptimizerStep(call) || call.ring != step_ring_ ||
      call.number != step_call_) {
    return std::nullopt;
  }
  // From here on states are those of no step.
  step_call_ = 0;
  if (outcome != CallOutcome::kReturned) return std::nullopt;
  const Optimizer* optimizer = facts.ownership().Find(call.object);
  // The optimizer is not known: the digest is not complete, but the step counts
  // (steps are compared by their number).
  if (!optimizer) return StepDigest();
  StepDigest digest{SettingsOf(facts, call, *optimizer), rows_, weights_,
                    gradients_, !optimizer->held.empty() && rows_ != kUnread};
  for (const HeldVariable& held : optimizer->held) {
    // Sums do not show that one of them is missing.
    digest.complete &= with_weight_.contains(held.variable) &&
                       with_gradient_.contains(held.variable);
  }
  return digest;
}

void StepDigests::Fields(Archive& archive) {
  archive(generators_, used_, rows_, step_ring_, step_call_, weights_,
          gradients_, with_weight_, with_gradient_);
}

}  // namespace traincheck
