// Facts of a variable, at a step of the optimizer that holds it.
#include <iterator>

#include "absl/strings/match.h"
#include "invariants/facts/fact.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/process_facts.h"
#include "invariants/facts/row_changes.h"
#include "invariants/facts/variable_state.h"
#include "invariants/trace/definitions.h"
#include "proto/record_format.h"

namespace traincheck {

namespace {

const OptimizerBooks& Books(const FactSubject& subject) {
  return subject.facts->optimizer_books();
}

const VariableInfo* Info(const FactSubject& subject) {
  return subject.facts->definitions().Variable(subject.variable);
}

const VariableState* State(const FactSubject& subject) {
  return subject.facts->Variable(subject.variable);
}

constexpr char kNotAtStep[] = "where it was not recorded at pre_step";

// What the variable's state says itself; unknown before its first record.
template <Tri (VariableState::*method)() const>
FactValue OfState(const FactSubject& subject) {
  const VariableState* state = State(subject);
  return state ? ToFactValue((state->*method)()) : FactValue();
}

// The words are those of docs/facts.md and of stored rules: they never change.
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
    case VariableKind::kInputs:
      return std::string("inputs");
    default:
      return {};
  }
}

FactValue Role(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  const VariableState* state = State(subject);
  if (!info || !state) return {};
  if (info->kind == VariableKind::kBuffer) return std::string("buffer");
  // A moving average needs no gradient, and is not frozen for that.
  if (info->shadow_of != 0) return std::string("shadow copy");
  if (state->trainable() == Tri::kUnknown) return {};
  return std::string(state->trainable() == Tri::kYes ? "trainable" : "frozen");
}

// Definitions say who holds what. They come before what uses them, so that
// "nobody" is known, too.
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
  const bool missed = Books(subject).MissedBackwardSince(subject.optimizer);
  // A backward that nobody saw may have given it one.
  if (!state->got_grad() && missed) return {};
  return state->got_grad();
}

FactValue GradZero(const FactSubject& subject) {
  const VariableState* state = State(subject);
  if (!state || state->has_grad_at_step() == Tri::kUnknown) return {};
  // An absent gradient counts as zero: this is what the fact's words say.
  return state->grad_nonzero_at_step() == Tri::kNo;
}

// The rate of the parameter group that holds the variable, as recorded when the
// step began.
FactValue EffectiveLr(const FactSubject& subject) {
  const auto lr = Books(subject).LearningRate(subject.optimizer, subject.group);
  return lr ? FactValue(*lr) : FactValue();
}

FactValue LrNonzero(const FactSubject& subject) {
  const auto lr = Books(subject).LearningRate(subject.optimizer, subject.group);
  return lr ? FactValue(*lr != 0) : FactValue();
}

// Counts up each time another tensor takes the variable's place under its name,
// as after `model.fc = nn.Linear(...)`.
FactValue IdentityEpoch(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  return info ? FactValue(static_cast<double>(info->identity_epoch))
              : FactValue();
}

FactValue Tied(const FactSubject& subject) {
  // IsTied says no of a variable that it does not know.
  if (!Info(subject)) return {};
  return subject.facts->ownership().IsTied(subject.variable);
}

// "placement.dp=S(0)" of a DTensor; "partition_dim=1" and
// "tensor_model_parallel=True" of Megatron's layers.
FactValue Sharded(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  if (!info) return {};
  for (const std::string& attribute : info->attributes) {
    // Megatron writes -1 where a parameter is not divided.
    if ((absl::StartsWith(attribute, "partition_dim=") &&
         attribute != "partition_dim=-1") ||
        attribute == "tensor_model_parallel=True" ||
        (absl::StartsWith(attribute, "placement.") &&
         absl::StrContains(attribute, "=S"))) {
      return true;
    }
  }
  return false;
}

// Workers of Hogwild training share parameters by share_memory(). The attribute
// says how the tensor was when its model was first seen.
FactValue InSharedMemory(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  if (!info) return {};
  for (const std::string& attribute : info->attributes) {
    if (attribute == "shared_memory=True") return true;
    if (attribute == "shared_memory=False") return false;
  }
  return {};
}

// A gradient that is not known counts: the rule is then unknown and not without
// an occasion.
bool HasGradient(const FactSubject& subject) {
  const VariableState* state = State(subject);
  return state && state->has_grad_at_step() != Tri::kNo;
}

FactValue RowsChangedWithoutGrad(const FactSubject& subject) {
  const RowChanges& rows = subject.facts->row_changes();
  return ToFactValue(rows.WithoutGrad(subject.variable));
}

// Parameters that were added after DistributedDataParallel was made are in the
// model and not in the wrapper, so nobody averages their gradients. Outside of
// such a model there is nothing to know.
bool IsOfWrappedModel(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  return info && subject.facts->ownership().IsReplicatedModel(info->root);
}

// Is it a frozen parameter that is held, and whose gradient is absent or zero?
// Momentum and weight decay move it all the same, if its gradient was left at
// zero rather than None. A shadow copy (a moving average) has no gradient, and
// is to move.
bool IsFrozenWithoutGradient(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  const VariableState* state = State(subject);
  return info && state && info->shadow_of == 0 &&
         state->trainable() == Tri::kNo &&
         state->has_grad_at_step() != Tri::kUnknown &&
         state->grad_nonzero_at_step() == Tri::kNo;
}

// Scales of normalisations have one dimension, or none.
bool IsVector(const VariableInfo& info) { return info.shape.size() <= 1; }

bool IsOfNormalisation(const VariableInfo& info) {
  return IsVector(info) && absl::StrContains(info.owner_class, "Norm");
}

// A script that exempts vectors (biases) from weight decay and not the scales
// of its normalisations has forgotten these. An optimizer that treats all
// parameters alike exempts nothing, and is not asked.
bool IsNormOfSplitOptimizer(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  return info && IsOfNormalisation(*info) &&
         Books(subject).SparesVectors(subject.optimizer, info->root);
}

FactValue NormDecays(const FactSubject& subject) {
  const auto& decays = Books(subject).WeightDecays(subject.optimizer);
  const auto decay = decays.find(subject.group);
  return decay == decays.end() ? FactValue() : FactValue(decay->second != 0);
}

// Known, or nothing is asked: see VariableState::overwritten for the habit that
// it takes.
bool MayBeOverwritten(const FactSubject& subject) {
  const VariableState* state = State(subject);
  return state && state->trainable() == Tri::kYes &&
         state->overwritten() != Tri::kUnknown;
}

// Up to the first step after a load; afterwards the content is the training's
// own.
bool IsLoaded(const FactSubject& subject) {
  const VariableState* state = State(subject);
  return state && state->loaded();
}

bool IsBuffer(const FactSubject& subject) {
  const VariableInfo* info = Info(subject);
  return info && info->kind == VariableKind::kBuffer;
}

// That nobody writes it is known only where everything was recorded.
FactValue WrittenByForward(const FactSubject& subject) {
  const VariableState* state = State(subject);
  if (!IsBuffer(subject) || !state) return {};
  if (subject.facts->IsWrittenByForwards(subject.variable)) return true;
  const bool all =
      subject.facts->gaps() == 0 && subject.facts->recorded().whole();
  return all ? FactValue(false) : FactValue();
}

FactValue UpdatedOrLoaded(const FactSubject& subject) {
  const VariableState* state = State(subject);
  if (!IsBuffer(subject) || !state) return {};
  return ToFactValue(state->updated_or_loaded());
}

// Rows are as in call_facts.cc. Subjects are the variables that the optimizer
// of a step holds, and buffers of its models.
constexpr auto kOf = FactOf::kVariable;
constexpr Fact kRows[] = {
    {"var.kind", kOf, FactType::kText, FactNeed::kNone, "its kind", nullptr,
     "without a definition", Kind},
    {"var.role", kOf, FactType::kText, FactNeed::kAny, "its role", nullptr,
     "before its first state record", Role},
    {"var.held_by", kOf, FactType::kBool, FactNeed::kNone,
     "an optimizer holds it", "no optimizer holds it", "without a variable",
     Held},
    {"var.replica_group", kOf, FactType::kBool, FactNeed::kNone,
     "other ranks hold a replica", "no other rank holds a replica",
     "without a variable", Replicated},
    {"var.got_grad", kOf, FactType::kBool, FactNeed::kGradients,
     "a backward gave it a non-zero gradient since the last step",
     "no backward gave it a non-zero gradient since the last step",
     "before its first state record, and where a backward was not sampled",
     GotGrad},
    {"grad.present", kOf, FactType::kBool, FactNeed::kGradients,
     "its gradient is there at the step", "its gradient is absent at the step",
     kNotAtStep, OfState<&VariableState::has_grad_at_step>},
    {"grad.zero", kOf, FactType::kBool, FactNeed::kGradients,
     "its gradient is zero or absent", "its gradient is present and not zero",
     kNotAtStep, GradZero},
    {"var.effective_lr", kOf, FactType::kNumber, FactNeed::kNone,
     "its learning rate", nullptr, "where the optimizer's lr was not recorded",
     EffectiveLr},
    {"var.lr_nonzero", kOf, FactType::kBool, FactNeed::kNone,
     "its learning rate is not zero", "its learning rate is zero",
     "where the optimizer's lr was not recorded", LrNonzero},
    {"var.changed", kOf, FactType::kBool, FactNeed::kUpdates,
     "the step changed it", "the step did not change it",
     "where it was not recorded before and after it",
     OfState<&VariableState::changed_in_step>},
    {"var.known_to_wrapper", kOf, FactType::kBool, FactNeed::kNone,
     "the wrapper of its model knows it",
     "the wrapper of its model does not know it", "without a variable",
     Replicated, IsOfWrappedModel},
    {"var.frozen_changed", kOf, FactType::kBool, FactNeed::kUpdatesOfFrozen,
     "it is frozen and has no gradient, and the step changed it",
     "it is frozen and has no gradient, and the step did not change it",
     "where it was not recorded before and after it",
     OfState<&VariableState::changed_in_step>, IsFrozenWithoutGradient},
    {"var.norm_decays", kOf, FactType::kBool, FactNeed::kNone,
     "it scales a normalisation and is in a group with weight decay",
     "it scales a normalisation and is in a group without weight decay",
     "where the decay of its group was not recorded", NormDecays,
     IsNormOfSplitOptimizer},
    {"var.overwritten", kOf, FactType::kBool, FactNeed::kOverwrites,
     "something else than a step or a load has changed it",
     "only optimizer steps and loads have changed it",
     "where it was not recorded around both steps",
     OfState<&VariableState::overwritten>, MayBeOverwritten},
    {"var.identity_epoch", kOf, FactType::kNumber, FactNeed::kNone,
     "how often another tensor took its place", nullptr, "without a definition",
     IdentityEpoch},
    {"var.alias_group", kOf, FactType::kBool, FactNeed::kNone,
     "another name shares its storage", "no other name shares its storage",
     "without a definition", Tied},
    {"var.sharded", kOf, FactType::kBool, FactNeed::kNone,
     "each rank holds a part of it", "it is not divided among ranks",
     "without a definition", Sharded},
    {"var.shared_memory", kOf, FactType::kBool, FactNeed::kNone,
     "it lies in memory that processes share",
     "it does not lie in memory that processes share",
     "for what is not on the CPU", InSharedMemory},
    {"grad.finite", kOf, FactType::kBool, FactNeed::kStatistics,
     "its gradient has no NaN and no infinity",
     "its gradient has a NaN or an infinity",
     "where its statistics were not recorded at pre_step",
     OfState<&VariableState::grad_finite_at_step>, HasGradient},
    {"rows_changed_without_grad", kOf, FactType::kBool, FactNeed::kRows,
     "the step changed rows whose gradients are zero",
     "the step changed no rows whose gradients are zero",
     "where its rows were not recorded around the step", RowsChangedWithoutGrad,
     HasGradient},
    {"loaded.consumed", kOf, FactType::kBool, FactNeed::kLoads,
     "what was loaded into it is still there",
     "what was loaded into it has been replaced", kNotAtStep,
     OfState<&VariableState::loaded_kept_at_step>, IsLoaded},
    {"buffer.written_by_forward", kOf, FactType::kBool, FactNeed::kBuffers,
     "training forwards write such a buffer",
     "training forwards do not write such a buffer",
     "for no buffers, and while none did where records are missing",
     WrittenByForward, IsBuffer},
    {"buffer.updated_or_loaded", kOf, FactType::kBool, FactNeed::kBuffers,
     "it was updated or loaded", "it was neither updated nor loaded",
     "for no buffers, and where its first content was not recorded",
     UpdatedOrLoaded, IsBuffer},
};

}  // namespace

const std::vector<Fact>& VariableFacts() {
  static const auto* const kFacts =
      new std::vector<Fact>(std::begin(kRows), std::end(kRows));
  return *kFacts;
}

}  // namespace traincheck
