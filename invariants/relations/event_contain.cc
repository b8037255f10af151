#include "invariants/relations/event_contain.h"

#include "invariants/relations/contain_calls.h"
#include "invariants/relations/contain_generator.h"
#include "invariants/relations/contain_spans.h"
#include "invariants/relations/contain_updates.h"
#include "invariants/relations/several.h"

namespace traincheck {

namespace {

using NewPart = std::unique_ptr<ProcessObserver> (*)(const ContainRules*,
                                                     RuleSink*);

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

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    AddContainNeeds(*ContainSpecFromJson(parameters, ""), needs);
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return NewContainGenerator();
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    ContainRules calls;
    ContainRules spans;
    ContainRules updates;
    for (size_t i = 0; i < rules.size(); ++i) {
      auto spec = ContainSpecFromJson(rules[i].invariant->parameters, "");
      if (!spec.ok()) continue;
      ContainRule rule{i, &rules[i], *std::move(spec), {}};
      rule.facts = ContainFacts(rule.spec);
      const bool of_call =
          rule.spec.is_call || rule.spec.state == StateKind::kGradChanged;
      ContainRules& part = !of_call ? updates : rule.spec.span ? spans : calls;
      part.push_back(std::move(rule));
    }
    auto parts = std::make_unique<Several<RunObserver>>();
    parts->Add(std::make_unique<Part>(std::move(calls), NewContainCalls, sink));
    parts->Add(std::make_unique<Part>(std::move(spans), NewContainSpans, sink));
    parts->Add(
        std::make_unique<Part>(std::move(updates), NewContainUpdates, sink));
    return parts;
  }
};

}  // namespace

const Relation* EventContain() {
  static const auto* const kRelation = new EventContainRelation;
  return kRelation;
}

}  // namespace traincheck
