#include "invariants/relations/consistent.h"

#include "invariants/relations/consistent_ranks.h"
#include "invariants/relations/consistent_variables.h"
#include "invariants/relations/several.h"

namespace traincheck {

namespace {

bool IsAcrossRanks(const nlohmann::json& parameters) {
  return parameters.is_object() && parameters.contains("across") &&
         parameters["across"] == "ranks";
}

class ConsistentRelation : public Relation {
 public:
  const char* name() const override { return "Consistent"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    return IsAcrossRanks(parameters)
               ? CheckConsistentRanks(parameters, path)
               : CheckConsistentVariables(parameters, path);
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    return IsAcrossRanks(parameters) ? DescribeConsistentRanks(parameters)
                                     : DescribeConsistentVariables(parameters);
  }

  // Evidence of replication, or two names, say when it applies: nothing is
  // left to learn.
  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    // Both forms name the state that they compare in the same way.
    const std::string of = parameters.at("of");
    if (of == "parameter.grad") {
      needs->Gradients();
    } else {
      needs->State(of, parameters.at("point"));
    }
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    auto forms = std::make_unique<SeveralGenerators>();
    forms->Add(NewConsistentRanksGenerator());
    forms->Add(NewConsistentVariablesGenerator());
    return forms;
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    auto forms = std::make_unique<Several<RunObserver>>();
    forms->Add(NewConsistentRanksEvaluator(rules, sink));
    forms->Add(NewConsistentVariablesEvaluator(rules, sink));
    return forms;
  }
};

}  // namespace

const Relation* Consistent() {
  static const auto* const kRelation = new ConsistentRelation;
  return kRelation;
}

}  // namespace traincheck
