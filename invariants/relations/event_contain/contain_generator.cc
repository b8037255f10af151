#include "invariants/relations/event_contain/contain_generator.h"

#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "invariants/relations/event_contain/contain_pairs.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/relations/event_contain/contain_spans.h"
#include "invariants/rules/hypothesis_set.h"

namespace traincheck {

namespace {

bool IsTorch(const std::string& name) { return name.rfind("torch.", 0) == 0; }

Scope ScopeOf(const FunctionMatch& match) {
  return match.IsGeneral() ? Scope::kGeneral : Scope::kExperiment;
}

FunctionMatch Category(const char* name) { return {Level::kCategory, name}; }
FunctionMatch Name(const std::string& name) { return {Level::kName, name}; }

// What a step, or a span that ends with one, may do to parameters.
struct StateOfStep {
  StateKind state;
  bool span;
  bool every;
  Scope scope;
};

constexpr StateOfStep kStatesOfSteps[] = {
    {StateKind::kDataChanged, false, false, Scope::kGeneral},
    // Whether each parameter moves depends on rates and precision, which are
    // the experiment's.
    {StateKind::kDataChanged, false, true, Scope::kExperiment},
    // What else may touch parameters is the experiment's.
    {StateKind::kDataKept, true, true, Scope::kExperiment},
    // Some programs train a part of a model on purpose and freeze nothing.
    {StateKind::kHeld, false, true, Scope::kExperiment},
    {StateKind::kTrainable, false, false, Scope::kGeneral},
    {StateKind::kCurrent, false, true, Scope::kGeneral},
    {StateKind::kGradReached, false, true, Scope::kGeneral},
    {StateKind::kGradNonzero, true, false, Scope::kGeneral},
};

// What may hold of each parameter or buffer at a step.
struct FactOfStep {
  const char* fact;
  bool value;
  bool of_buffers;
  Scope scope;
};

constexpr FactOfStep kFactsOfSteps[] = {
    {"grad.finite", true, false, Scope::kGeneral},
    // Momentum and weight decay move such rows too. That an optimizer has
    // neither is a matter of the experiment.
    {"rows_changed_without_grad", false, false, Scope::kExperiment},
    // Some programs initialise a part of a model again after loading the whole.
    {"loaded.consumed", true, false, Scope::kExperiment},
    // Several processes train one model (Hogwild).
    {"var.shared_memory", true, false, Scope::kExperiment},
    // Other programs freeze a normalisation layer, or only evaluate it.
    {"buffer.updated_or_loaded", true, true, Scope::kExperiment},
};

constexpr char kByRole[] = "a role says it of all that have it";

void AddHypothesis(const ContainSpec& spec, Scope scope,
                   const std::vector<ContainSpec>& broader, const char* why,
                   HypothesisSet* out) {
  Hypothesis hypothesis{spec.ToJson(), scope, {}};
  for (const ContainSpec& other : broader) {
    hypothesis.broader.push_back({other.ToJson(), why});
  }
  out->Add(std::move(hypothesis));
}

// An event that some span contained.
struct SpanEvent {
  FunctionMatch match;
  Binding binding = Binding::kAny;
  Scope scope = Scope::kExperiment;
  FunctionMatch broader;  // text "": none

  auto Key() const { return std::tie(match.level, match.text, binding); }
  bool operator<(const SpanEvent& other) const { return Key() < other.Key(); }
};

class WindowsSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override;
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override;
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    // The id is that of the optimizer. One that holds nothing binds no call.
    if (type == RecordType::kHoldDef) optimizers_.insert(id);
  }

  void Collect(const ProcessDefinitions& definitions, HypothesisSet* out) const;

 private:
  void SeeForward(const ProcessFacts& facts, const Call& call);
  void SeeSpanEvent(const ProcessFacts& facts, const Call& call);
  bool IsBoundToAny(const ProcessFacts& facts, const Call& call,
                    Binding binding) const;
  void CollectStep(const FunctionInfo& step, HypothesisSet* out) const;

  std::set<uint32_t> optimizers_;
  std::set<uint32_t> steps_;  // functions
  std::set<uint32_t> backwards_;
  std::set<SpanEvent> span_events_;
  ContainPairs pairs_;
};

void WindowsSeen::OnCallBegin(const ProcessFacts& facts, const Call& call) {
  pairs_.OnCallBegin(facts, call);
  if (!call.function) return;
  if (IsOptimizerStep(call)) steps_.insert(call.function_id);
  if (HasCategory(call, CallCategory::kBackward))
    backwards_.insert(call.function_id);
  SeeSpanEvent(facts, call);
}

void WindowsSeen::OnCallEnd(const ProcessFacts& facts, const Call& call,
                            CallOutcome outcome) {
  pairs_.OnCallEnd(call);
}

// Asked at the call, with what is known of the optimizers by then. Whether the
// event comes in each span shows when the run is judged by the hypothesis.
bool WindowsSeen::IsBoundToAny(const ProcessFacts& facts, const Call& call,
                               Binding binding) const {
  for (uint32_t id : optimizers_) {
    const Optimizer* optimizer = facts.ownership().Find(id);
    if (IsBoundToOptimizer(facts, optimizer, call.object, binding) ==
        Tri::kYes) {
      return true;
    }
  }
  return false;
}

void WindowsSeen::SeeForward(const ProcessFacts& facts, const Call& call) {
  const FunctionMatch broadest = Broadest(*call.function);
  if (IsBoundToAny(facts, call, Binding::kWrapper)) {
    const FunctionMatch name = Name(call.function->name);
    span_events_.insert({name, Binding::kWrapper, Scope::kExperiment, {}});
    return;
  }
  if (!IsBoundToAny(facts, call, Binding::kHeld)) return;
  // Of the experiment: a step without a forward of its own (a skipped batch)
  // does no harm to others.
  span_events_.insert({broadest, Binding::kHeld, Scope::kExperiment, {}});
  if (!IsTorch(call.function->name)) {
    span_events_.insert({Name(call.function->name), Binding::kHeld,
                         Scope::kExperiment, broadest});
  }
}

void WindowsSeen::SeeSpanEvent(const ProcessFacts& facts, const Call& call) {
  const std::string& category = call.function->category.text();
  if (category == "forward") {
    // Evaluations are no part of what each span must have.
    if (call.Is(kGradEnabled)) SeeForward(facts, call);
  } else if (category == "backward") {
    // Only of the experiment: other programs may make gradients without a
    // backward (torch.func). For them a built-in rule asks for new gradients.
    span_events_.insert(
        {Category("backward"), Binding::kAny, Scope::kExperiment, {}});
  } else if (category == "zero_grad") {
    if (!IsBoundToAny(facts, call, Binding::kHeld)) return;
    span_events_.insert(
        {Category("zero_grad"), Binding::kHeld, Scope::kGeneral, {}});
  } else if (category == "clip_grad") {
    span_events_.insert(
        {Name(call.function->name), Binding::kAny, Scope::kExperiment, {}});
  } else if (category == "loader_next") {
    span_events_.insert(
        {Category("loader_next"), Binding::kAny, Scope::kExperiment, {}});
  }
}

// A window at the step's broadest role and at its name.
void WindowsSeen::CollectStep(const FunctionInfo& step,
                              HypothesisSet* out) const {
  const FunctionMatch role = Broadest(step);
  // Asked of all steps, whatever this run showed: the run is judged by each
  // hypothesis, and one that it breaks is dropped.
  for (const FunctionMatch& window : {role, Name(step.name)}) {
    const auto add = [&](ContainSpec spec, Scope scope,
                         std::vector<ContainSpec> broader) {
      spec.window = role;
      // The rule at the role is broader than the rule at the name;
      // HypothesisSet does not take a rule as broader than itself.
      broader.push_back(spec);
      spec.window = window;
      // One class of optimizer, where the rule does not hold for all, is what
      // the experiment happens to use.
      const bool narrow = window.text != role.text;
      if (narrow || ScopeOf(window) == Scope::kExperiment) {
        scope = Scope::kExperiment;
      }
      AddHypothesis(spec, scope, broader, kByRole, out);
    };
    for (const StateOfStep& row : kStatesOfSteps) {
      add({.span = row.span, .event = StateInWindow{row.state, row.every}},
          row.scope, {});
    }
    for (const FactOfStep& row : kFactsOfSteps) {
      add({.event =
               FactInWindow{{FindFact(row.fact), row.value}, row.of_buffers}},
          row.scope, {});
    }
    for (const SpanEvent& event : span_events_) {
      std::vector<ContainSpec> broader;
      // The rule on the broadest role says the same of every class of models.
      if (!event.broader.text.empty()) {
        broader.push_back(
            {.span = true,
             .window = role,
             .event = CallInWindow{event.broader, event.binding}});
      }
      add({.span = true, .event = CallInWindow{event.match, event.binding}},
          event.scope, broader);
    }
  }
}

void WindowsSeen::Collect(const ProcessDefinitions& definitions,
                          HypothesisSet* out) const {
  pairs_.Collect(definitions, out);
  for (uint32_t id : steps_) {
    const FunctionInfo* step = definitions.Function(id);
    if (step) CollectStep(*step, out);
  }
  if (backwards_.empty()) return;
  const StateInWindow changed{StateKind::kGradChanged};
  AddHypothesis({.window = Category("backward"), .event = changed},
                Scope::kGeneral, {}, "", out);
}

}  // namespace

std::unique_ptr<Generator> NewContainGenerator() {
  return std::make_unique<SeenGenerator<WindowsSeen>>();
}

}  // namespace traincheck
