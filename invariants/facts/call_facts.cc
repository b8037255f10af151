// Facts of a call, known when it begins unless their row says otherwise.
#include <algorithm>
#include <iterator>

#include "absl/strings/match.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "invariants/facts/autocast.h"
#include "invariants/facts/clipped_gradients.h"
#include "invariants/facts/fact.h"
#include "invariants/facts/frozen_modes.h"
#include "invariants/facts/module_modes.h"
#include "invariants/facts/observations.h"
#include "invariants/facts/process_facts.h"
#include "invariants/facts/random_draws.h"
#include "invariants/facts/training_modes.h"
#include "invariants/facts/wrapper_calls.h"
#include "invariants/trace/call_category.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

FactValue Flag(const FactSubject& subject, CallFlag flag) {
  if (!subject.call) return {};
  return subject.call->Is(flag);
}

bool IsForward(const FactSubject& subject) {
  return subject.call && HasCategory(*subject.call, CallCategory::kForward);
}

// The stage of the thread that made the last call, which is that of the call:
// facts are read while its event is shown.
FactValue Stage(const FactSubject& subject) {
  if (!subject.call) return {};
  const char* stage = subject.facts->stage();
  return stage ? FactValue(std::string(stage)) : FactValue();
}

FactValue ModuleTraining(const FactSubject& subject) {
  if (!IsForward(subject)) return {};
  return subject.call->Is(kModuleTraining);
}

FactValue IsRoot(const FactSubject& subject) {
  if (!IsForward(subject)) return {};
  return subject.call->Is(kRootModuleCall);
}

FactValue GradMode(const FactSubject& subject) {
  return Flag(subject, kGradEnabled);
}

FactValue InsideBackward(const FactSubject& subject) {
  return Flag(subject, kInsideBackward);
}

FactValue IsRecompute(const FactSubject& subject) {
  if (!IsForward(subject)) return {};
  return subject.call->Is(kInsideBackward);
}

// Without gradients a wrapper has nothing to do: many evaluate the module
// itself. Once the gradients of a step are reduced, a call past the wrapper
// measures something. A critic that is frozen while its generator trains has no
// gradients to reduce.
bool IsOfWrapped(const FactSubject& subject) {
  return IsForward(subject) && subject.call->Is(kGradEnabled) &&
         subject.facts->wrapper_calls().IsWrapped(subject.call->object) &&
         !subject.facts->wrapper_calls().is_reduced() &&
         subject.facts->observations().Find(subject.call->object,
                                            "wrapped.is_frozen") != true;
}

FactValue InsideWrapper(const FactSubject& subject) {
  if (!IsForward(subject)) return {};
  return ToFactValue(subject.facts->wrapper_calls().Enclose(*subject.call));
}

// Does a class of the user's define a method that a base class has, too?
FactValue Overrides(const FactSubject& subject) {
  if (!subject.call || !subject.call->function) return {};
  const FunctionInfo& function = *subject.call->function;
  // The last role is the method of the most general class that has it. torch's
  // own classes override methods, too, which says nothing of the user.
  return !function.roles.empty() && function.roles.back() != function.name &&
         !absl::StartsWith(function.name, "torch.");
}

// In a program that never enters autocast the type could not be otherwise, and
// rules on it would judge each of its calls.
bool UsesAutocast(const FactSubject& subject) {
  return subject.call && subject.facts->autocast().used();
}

FactValue AutocastDtype(const FactSubject& subject) {
  if (!subject.call) return {};
  const auto dtype =
      subject.facts->autocast().InnermostDtype(subject.call->ring);
  return dtype ? FactValue(*dtype) : FactValue();
}

struct Dropout {
  const double* p = nullptr;
  const int64_t* whole_p = nullptr;  // 0 or 1
  const bool* active = nullptr;
  bool always = false;  // attention has no flag: it drops what it is given
};

// Functions that drop elements name their arguments in several ways: p with
// `training` or `train`, and attention `dropout_p`. Python's 0 and 1 are
// integers.
Dropout DropoutOf(const ToldArguments& told) {
  Dropout dropout;
  const CallValue* of_attention = told.Find("dropout_p");
  const CallValue* p = of_attention ? of_attention : told.Find("p");
  if (p) {
    dropout.p = p->Get<double>();
    dropout.whole_p = p->Get<int64_t>();
  }
  dropout.always = of_attention != nullptr;
  for (const char* name : {"training", "train"}) {
    const CallValue* active = told.Find(name);
    if (active && !dropout.active) dropout.active = active->Get<bool>();
  }
  return dropout;
}

// One with p = 0 drops nothing in any stage.
bool MayDrop(const FactSubject& subject) {
  if (!subject.call || !subject.call->function) return false;
  const std::vector<std::string>& roles = subject.call->function->roles;
  // The agent gives this word as the most general role to all functions that
  // drop elements, whatever their names.
  if (roles.empty() || roles.back() != "dropout") return false;
  const ToldArguments told =
      ArgumentsOf(*subject.call, subject.facts->definitions());
  const Dropout dropout = DropoutOf(told);
  // A p that was not recorded may be any: the call counts, and its share is
  // unknown.
  const bool zero = (dropout.p && *dropout.p == 0) ||
                    (dropout.whole_p && *dropout.whole_p == 0);
  return !zero;
}

FactValue EffectiveDropoutP(const FactSubject& subject) {
  if (!subject.call) return {};
  const ToldArguments told =
      ArgumentsOf(*subject.call, subject.facts->definitions());
  const Dropout dropout = DropoutOf(told);
  if (!dropout.active && !dropout.always) return {};
  // The mode comes first: outside of training no p drops anything.
  if (dropout.active && !*dropout.active) return 0.0;
  if (dropout.whole_p) return static_cast<double>(*dropout.whole_p);
  return dropout.p ? FactValue(*dropout.p) : FactValue();
}

bool MayDropInEvaluation(const FactSubject& subject) {
  // A mode that is not known counts, so that the rule is unknown there and not
  // without an occasion.
  return MayDrop(subject) && subject.facts->module_modes().InEvaluation(
                                 subject.call->ring) != Tri::kNo;
}

FactValue EvalDropoutP(const FactSubject& subject) {
  if (!subject.call) return {};
  const Tri evaluates =
      subject.facts->module_modes().InEvaluation(subject.call->ring);
  return evaluates == Tri::kYes ? EffectiveDropoutP(subject) : FactValue();
}

// Losses that compare element by element. If input and target differ in shape
// torch stretches the smaller one and goes on with a warning: [8] against [8,
// 1] compares each element with all others.
bool IsElementwiseLoss(const Call& call) {
  static constexpr absl::string_view kModule = "torch.nn.functional.";
  static constexpr absl::string_view kLosses[] = {
      "mse_loss",
      "l1_loss",
      "huber_loss",
      "smooth_l1_loss",
      "binary_cross_entropy",
      "binary_cross_entropy_with_logits"};
  if (!call.function) return false;
  absl::string_view name = call.function->name;
  return absl::ConsumePrefix(&name, kModule) &&
         std::find(std::begin(kLosses), std::end(kLosses), name) !=
             std::end(kLosses);
}

// Null: the argument was not recorded as a tensor with all its sizes.
const std::vector<uint64_t>* SizesOf(const ToldArguments& told,
                                     const char* name) {
  const CallValue* value = told.Find(name);
  const auto* tensor = value ? value->Get<TensorValue>() : nullptr;
  // A record has the first sizes only.
  const bool whole = tensor && tensor->dimensions == tensor->sizes.size();
  return whole ? &tensor->sizes : nullptr;
}

// [n, 1] against [1, m]: each of both is stretched, so that all pairs are
// meant.
bool ComparesPairs(const std::vector<uint64_t>& input,
                   const std::vector<uint64_t>& target) {
  if (input.size() != target.size()) return false;
  bool stretches_input = false;
  bool stretches_target = false;
  for (size_t i = 0; i < input.size(); ++i) {
    stretches_input |= input[i] == 1 && target[i] > 1;
    stretches_target |= target[i] == 1 && input[i] > 1;
  }
  return stretches_input && stretches_target;
}

// A target of one element (a constant, "real" of a discriminator) is meant to
// be compared with all elements. A target that is not known counts: the rule is
// then unknown, and not without an occasion.
bool ComparesElements(const FactSubject& subject) {
  if (!subject.call || !IsElementwiseLoss(*subject.call)) return false;
  const ToldArguments told =
      ArgumentsOf(*subject.call, subject.facts->definitions());
  const auto* input = SizesOf(told, "input");
  const auto* target = SizesOf(told, "target");
  if (input && target && ComparesPairs(*input, *target)) return false;
  return !target || std::any_of(target->begin(), target->end(),
                                [](uint64_t size) { return size != 1; });
}

FactValue ShapesMatch(const FactSubject& subject) {
  if (!subject.call) return {};
  const ToldArguments told =
      ArgumentsOf(*subject.call, subject.facts->definitions());
  const auto* input = SizesOf(told, "input");
  const auto* target = SizesOf(told, "target");
  // Whether torch stretches one of them shows only in all sizes of both.
  if (!input || !target) return {};
  return *input == *target;
}

// A model that was never seen to draw (no dropout, no sampling) draws nothing
// by intent.
bool MayDraw(const FactSubject& subject) {
  return subject.call && IsRootForward(*subject.call) &&
         subject.facts->random_draws().Draws(subject.call->object);
}

FactValue RngAdvanced(const FactSubject& subject) {
  if (!subject.call || !IsRootForward(*subject.call)) return {};
  return ToFactValue(
      subject.facts->random_draws().Advanced(subject.call->ring));
}

// Has the model a part that computes otherwise in training mode? Without one
// the mode makes no difference.
bool HasModes(const FactSubject& subject) {
  const ProcessFacts& facts = *subject.facts;
  for (const auto& [id, object] : facts.definitions().objects()) {
    if (object.root != subject.call->object) continue;
    for (const std::string& base : object.bases) {
      if (base == "torch.nn.modules.dropout._DropoutNd" ||
          base == "torch.nn.modules.batchnorm._BatchNorm") {
        return true;
      }
    }
  }
  return false;
}

bool Evaluates(const FactSubject& subject) {
  if (!subject.call || !IsRootForward(*subject.call)) return false;
  const Call& call = *subject.call;
  // HasModes comes last: it goes over all objects of the process.
  return !call.Is(kGradEnabled) && !call.Is(kInsideBackward) &&
         subject.facts->training_modes().MayBeEvaluated(call.object) &&
         HasModes(subject);
}

bool IsOfFrozen(const FactSubject& subject) {
  return IsForward(subject) &&
         subject.facts->frozen_modes().Concerns(*subject.call);
}

FactValue FrozenAsBefore(const FactSubject& subject) {
  if (!IsForward(subject)) return {};
  return !subject.call->Is(kModuleTraining);
}

// Until a clipping was followed by a step or by a clear there is nothing to
// judge.
bool ClearsClipped(const FactSubject& subject) {
  return subject.call && subject.facts->clipped_gradients().happened();
}

FactValue ClippedInVain(const FactSubject& subject) {
  return ToFactValue(subject.facts->clipped_gradients().InVain());
}

// Each row: name, what must be recorded, the words for true and for false, when
// it is unknown, how it is read, and where it applies. The words stand in rules
// and findings; docs/facts.md has the same rows in detail.
constexpr auto kOf = FactOf::kCall;
constexpr Fact kRows[] = {
    {"call.stage", kOf, FactType::kText, FactNeed::kNone, "the stage", nullptr,
     "outside calls, and after missing records until the next outermost "
     "module call or backward",
     Stage},
    {"call.module_training", kOf, FactType::kBool, FactNeed::kNone,
     "the module called is in training mode",
     "the module called is in evaluation mode", "for calls of no module",
     ModuleTraining, IsForward},
    {"call.is_root", kOf, FactType::kBool, FactNeed::kNone,
     "no module call encloses it", "a module call encloses it",
     "for calls of no module", IsRoot, IsForward},
    {"call.inside_backward", kOf, FactType::kBool, FactNeed::kNone,
     "it runs inside a backward", "it does not run inside a backward",
     "outside calls", InsideBackward},
    {"call.is_recompute", kOf, FactType::kBool, FactNeed::kNone,
     "it computes a forward again, in a backward",
     "it does not compute a forward again in a backward",
     "for calls of no module", IsRecompute, IsForward},
    {"call.inside_wrapper", kOf, FactType::kBool, FactNeed::kNone,
     "it goes through its wrapper (DistributedDataParallel), if it has one",
     "it bypasses its wrapper (DistributedDataParallel)",
     "for calls of no module, and after missing records until the next "
     "outermost one",
     InsideWrapper, IsOfWrapped, /*at_end=*/true},
    {"call.overrides", kOf, FactType::kBool, FactNeed::kNone,
     "the user's class defines the method",
     "the user's class does not define the method", "outside calls", Overrides},
    {"call.effective_dropout_p", kOf, FactType::kNumber, FactNeed::kDropout,
     "the share that it drops", nullptr,
     "where its p or its mode was not recorded", EffectiveDropoutP, MayDrop},
    {"call.eval_dropout_p", kOf, FactType::kNumber, FactNeed::kDropout,
     "the share that it drops in evaluation mode", nullptr,
     "where its p or its mode was not recorded, and after missing records "
     "until a module is called",
     EvalDropoutP, MayDropInEvaluation},
    {"call.shapes_match", kOf, FactType::kBool, FactNeed::kLosses,
     "its input and its target have the same sizes",
     "its input and its target have different sizes",
     "where they were not both recorded as tensors", ShapesMatch,
     ComparesElements},
    {"call.rng_advanced", kOf, FactType::kBool, FactNeed::kGenerators,
     "it draws random numbers", "it draws no random numbers",
     "for all but outermost module calls, and where a generator's state was "
     "not recorded",
     RngAdvanced, MayDraw, /*at_end=*/true},
    {"call.frozen_as_before", kOf, FactType::kBool, FactNeed::kNone,
     "the frozen module is in evaluation mode, as it was before",
     "the frozen module is in training mode, and was in evaluation mode before",
     "for calls of no module", FrozenAsBefore, IsOfFrozen, /*at_end=*/false,
     /*looked_at_since=*/0, Blamed::kSwitchOfMode},
    {"call.evaluates_training", kOf, FactType::kBool, FactNeed::kNone,
     "a model that has trained is called without gradients and still in "
     "training mode",
     "a model that has trained is called without gradients and in evaluation "
     "mode",
     "for calls of no module", ModuleTraining, Evaluates, /*at_end=*/false,
     /*looked_at_since=*/0, Blamed::kSwitchOfMode},
    {"grad.clipped_in_vain", kOf, FactType::kBool, FactNeed::kNone,
     "gradients are clipped only to be thrown away before a step",
     "gradients that are clipped are not thrown away before a step",
     "after missing records, until a step follows a clipping", ClippedInVain,
     ClearsClipped},
    {"ctx.grad_mode", kOf, FactType::kBool, FactNeed::kNone,
     "gradients are enabled", "gradients are disabled", "outside calls",
     GradMode},
    {"ctx.autocast_dtype", kOf, FactType::kText, FactNeed::kNone,
     "the type to which autocast casts", nullptr, "after missing records",
     AutocastDtype, UsesAutocast},
};

}  // namespace

const std::vector<Fact>& CallFacts() {
  static const auto* const kFacts =
      new std::vector<Fact>(std::begin(kRows), std::end(kRows));
  return *kFacts;
}

}  // namespace traincheck
