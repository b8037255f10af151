#include "invariants/relations/event_contain/contain_pairs.h"

#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

constexpr char kByWrapper[] = "a wrapper calls what it wraps";
constexpr char kByArgument[] = "such a call with an argument is a call";
constexpr char kTrainingFact[] = "call.module_training";
constexpr char kInitialiser[] = "initialiser";

FunctionMatch Name(const std::string& name) { return {Level::kName, name}; }

// The window of a "never" rule that this call opens, as the rule names it;
// nullopt: it opens none.
std::optional<FunctionMatch> WindowOf(const Call& call) {
  if (IsOptimizerStep(call)) {
    return FunctionMatch{Level::kRole, "torch.optim.optimizer.Optimizer.step"};
  }
  if (HasCategory(call, CallCategory::kBackward) && call.Is(kOutermost)) {
    return FunctionMatch{Level::kCategory, "backward"};
  }
  return std::nullopt;
}

// Calls that belong into no such window. Steps and clears are not among them: a
// closure clears within a step, and an optimizer for each layer steps within
// the backward.
std::optional<FunctionMatch> StrangerOf(const Call& call) {
  static const auto* const kCategories = new std::set<std::string>{
      "load_state_dict", "optimizer_init", "train_mode"};
  static const auto* const kRoles =
      new std::set<std::string>{"freeze", kInitialiser, "seed"};
  const std::string& category = call.function->category.text();
  if (kCategories->count(category)) {
    return FunctionMatch{Level::kCategory, category};
  }
  const std::vector<std::string>& roles = call.function->roles;
  if (!roles.empty() && kRoles->count(roles.back())) {
    return FunctionMatch{Level::kRole, roles.back()};
  }
  return std::nullopt;
}

ContainSpec CallIn(const FunctionMatch& window, CallInWindow event) {
  return {.window = window, .event = std::move(event)};
}

}  // namespace

void ContainPairs::OnCallBegin(const ProcessFacts& facts, const Call& call) {
  std::vector<Call>& open = open_[call.ring];
  if (call.function) {
    AdvanceStep(facts);
    if (!open.empty() && open.back().function)
      SeePair(facts, open.back(), call);
    SeeStranger(call);
    if (const auto window = WindowOf(call)) windows_.insert(*window);
  }
  open.push_back(call);
}

void ContainPairs::OnCallEnd(const Call& call) {
  std::vector<Call>& open = open_[call.ring];
  if (!open.empty()) open.pop_back();
}

void ContainPairs::SeePair(const ProcessFacts& facts, const Call& parent,
                           const Call& child) {
  // By numbers of functions: names are looked up once, at the end of the run.
  const Pair pair{parent.function_id, child.function_id};
  pairs_.insert(pair);
  const ObjectInfo* object = facts.definitions().Object(parent.object);
  if (object && object->wrapped != 0 && object->wrapped == child.object) {
    wrapped_.insert(pair);
  }
  const bool module = HasCategory(parent, CallCategory::kForward);
  if (module && !child.content.empty()) SeeFlag(facts, parent, child);
}

// An argument follows the module's mode only if it did with both of its values:
// one value alone may be a constant.
void ContainPairs::SeeFlag(const ProcessFacts& facts, const Call& parent,
                           const Call& child) {
  const bool training = parent.Is(kModuleTraining);
  for (const CallArgument& argument :
       ArgumentsOf(child, facts.definitions()).all) {
    const bool* flag = argument.value.Get<bool>();
    if (!flag) continue;
    Follows& follows =
        flags_[{parent.function_id, child.function_id}][argument.name];
    follows.always &= *flag == training;
    (training ? follows.on : follows.off) = true;
  }
}

void ContainPairs::SeeStranger(const Call& call) {
  const auto stranger = StrangerOf(call);
  if (!stranger) return;
  strangers_.insert(*stranger);
  // At any depth: a window of "never" is all that happens while it is open.
  for (const Call& around : open_[call.ring]) {
    if (!around.function) continue;
    const auto window = WindowOf(around);
    if (window) happened_.insert({*window, *stranger});
  }
}

void ContainPairs::AdvanceStep(const ProcessFacts& facts) {
  if (!steps_.Advance(facts)) return;
  // An occasion is a step that had both, but not one in the other: only then
  // could it have been otherwise.
  if (steps_.closed().whole) {
    for (const FunctionMatch& window : windows_) {
      for (const FunctionMatch& stranger : strangers_) {
        occasions_.insert({window, stranger});
      }
    }
  }
  windows_.clear();
  strangers_.clear();
}

void ContainPairs::CollectPair(const ProcessDefinitions& definitions,
                               const Pair& pair, HypothesisSet* out) const {
  const FunctionInfo* parent = definitions.Function(pair.first);
  const FunctionInfo* child = definitions.Function(pair.second);
  if (!parent || !child || parent->name.empty() || child->name.empty()) return;
  // What torch's own functions call is no habit of the program.
  if (absl::StartsWith(parent->name, "torch.")) return;
  const FunctionMatch window = Name(parent->name);
  const FunctionMatch event = Name(child->name);
  Hypothesis hypothesis{
      CallIn(window, {event}).ToJson(), Scope::kExperiment, {}};
  const FunctionMatch role = Broadest(*child);
  const ContainSpec bound = CallIn(window, {role, Binding::kWrapped});
  if (wrapped_.count(pair)) {
    out->Add({bound.ToJson(), Scope::kExperiment, {}});
  }
  // Named also where nothing was wrapped: a broader rule counts only where it
  // ships.
  hypothesis.broader.push_back({bound.ToJson(), kByWrapper});
  const auto flags = flags_.find(pair);
  if (flags != flags_.end()) {
    for (const auto& [argument, follows] : flags->second) {
      if (!follows.always || !follows.on || !follows.off) continue;
      const ContainSpec with = CallIn(
          window, {.function = event,
                   .with = {argument, FindFact(kTrainingFact), nullptr}});
      out->Add({with.ToJson(), Scope::kExperiment, {}});
      hypothesis.broader.push_back({with.ToJson(), kByArgument});
    }
  }
  out->Add(std::move(hypothesis));
}

// A pair is a rule only if a step had both and never one inside the other:
// without an occasion the rule could not have been refuted.
void ContainPairs::CollectNever(HypothesisSet* out) const {
  for (const auto& [window, stranger] : occasions_) {
    if (window == stranger || happened_.count({window, stranger})) continue;
    const ContainSpec never =
        CallIn(window, {.function = stranger, .never = true});
    // FSDP2's parameters make an optimizer's state, in its first step, by them.
    const bool of_state =
        stranger.text == kInitialiser && window.level == Level::kRole;
    const Scope scope = of_state ? Scope::kExperiment : Scope::kGeneral;
    out->Add({never.ToJson(), scope, {}});
  }
}

void ContainPairs::Collect(const ProcessDefinitions& definitions,
                           HypothesisSet* out) const {
  for (const Pair& pair : pairs_) CollectPair(definitions, pair, out);
  CollectNever(out);
}

}  // namespace traincheck
