#include "invariants/relations/event_contain/event_contain.h"

#include <map>

#include "invariants/relations/event_contain/contain_calls.h"
#include "invariants/relations/event_contain/contain_cleared.h"
#include "invariants/relations/event_contain/contain_facts.h"
#include "invariants/relations/event_contain/contain_generator.h"
#include "invariants/relations/event_contain/contain_kept.h"
#include "invariants/relations/event_contain/contain_spans.h"
#include "invariants/relations/event_contain/contain_updates.h"
#include "invariants/rules/several.h"

namespace traincheck {

namespace {

using NewPart = std::unique_ptr<ProcessObserver> (*)(const ContainRules*,
                                                     RuleSink*);

// Who judges such a rule.
NewPart PartOf(const ContainSpec& spec) {
  if (spec.is_call) return spec.span ? NewContainSpans : NewContainCalls;
  switch (spec.state) {
    case StateKind::kGradChanged:
      return NewContainCalls;
    case StateKind::kGradCleared:
      return NewContainCleared;
    case StateKind::kDataKept:
      return NewContainKept;
    case StateKind::kFact:
      return NewContainFacts;
    case StateKind::kDataChanged:
    case StateKind::kGradNonzero:
    case StateKind::kHeld:
      break;
  }
  return NewContainUpdates;
}

// The rules of one kind of window, over all processes of a run.
class Part : public RunObserver {
 public:
  Part(ContainRules rules, NewPart new_part, RuleSink* sink)
      : rules_(std::move(rules)), new_part_(new_part), sink_(sink) {}

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(new_part_(&rules_, sink_));
    return processes_.back().get();
  }
  void EndRun() override {}

 private:
  const ContainRules rules_;
  const NewPart new_part_;
  RuleSink* const sink_;
  std::vector<std::unique_ptr<ProcessObserver>> processes_;
};

class EventContainRelation : public Relation {
 public:
  const char* name() const override { return "EventContain"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    return ContainSpecFromJson(parameters, path).status();
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    return ContainSpecFromJson(parameters, "")->Describe();
  }

  std::vector<const Fact*> FactsFor(
      const nlohmann::json& parameters) const override {
    return ContainFacts(*ContainSpecFromJson(parameters, ""));
  }

  // Where no gradient flows, a rule on parameters that got one is silent; then
  // the one that some gradient of the span is not zero speaks.
  std::vector<nlohmann::json> GuardsOf(const nlohmann::json& parameters,
                                       const Fact& fact) const override {
    if (fact.need != FactNeed::kGradients) return {};
    ContainSpec guard;
    guard.window = ContainSpecFromJson(parameters, "")->window;
    guard.is_call = false;
    guard.span = true;
    guard.state = StateKind::kGradNonzero;
    return {guard.ToJson()};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    AddContainNeeds(*ContainSpecFromJson(parameters, ""), needs);
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return NewContainGenerator();
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    std::map<NewPart, ContainRules> by_part;
    for (size_t i = 0; i < rules.size(); ++i) {
      auto spec = ContainSpecFromJson(rules[i].invariant->parameters, "");
      if (!spec.ok()) continue;
      ContainRule rule{i, &rules[i], *std::move(spec), {}};
      rule.facts = ContainFacts(rule.spec);
      by_part[PartOf(rule.spec)].push_back(std::move(rule));
    }
    auto parts = std::make_unique<Several<RunObserver>>();
    for (const NewPart part :
         {NewContainCalls, NewContainSpans, NewContainUpdates,
          NewContainCleared, NewContainKept, NewContainFacts}) {
      if (by_part[part].empty()) continue;
      parts->Add(std::make_unique<Part>(std::move(by_part[part]), part, sink));
    }
    return parts;
  }
};

}  // namespace

const Relation* EventContain() {
  static const auto* const kRelation = new EventContainRelation;
  return kRelation;
}

}  // namespace traincheck
