#include "invariants/relations/consistent.h"

#include "invariants/relations/consistent_ranks.h"
#include "invariants/relations/consistent_rates.h"
#include "invariants/relations/consistent_returns.h"
#include "invariants/relations/consistent_variables.h"
#include "invariants/relations/several.h"

namespace traincheck {

namespace {

enum class Form { kVariables, kStates, kRates, kReturns };

Form FormOf(const nlohmann::json& parameters) {
  if (!parameters.is_object() ||
      parameters.value("across", nlohmann::json()) != "ranks") {
    return Form::kVariables;
  }
  const nlohmann::json of = parameters.value("of", nlohmann::json());
  if (of == "optimizer.lr") return Form::kRates;
  return of == "return" ? Form::kReturns : Form::kStates;
}

class ConsistentRelation : public Relation {
 public:
  const char* name() const override { return "Consistent"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    switch (FormOf(parameters)) {
      case Form::kVariables:
        return CheckConsistentVariables(parameters, path);
      case Form::kStates:
        return CheckConsistentRanks(parameters, path);
      case Form::kRates:
        return CheckConsistentRates(parameters, path);
      case Form::kReturns:
        return CheckConsistentReturns(parameters, path);
    }
    return absl::InternalError("no such form");
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    switch (FormOf(parameters)) {
      case Form::kVariables:
        return DescribeConsistentVariables(parameters);
      case Form::kStates:
        return DescribeConsistentRanks(parameters);
      case Form::kRates:
        return DescribeConsistentRates();
      case Form::kReturns:
        return DescribeConsistentReturns(parameters);
    }
    return "";
  }

  // Evidence of replication, or two names, say when it applies: nothing is
  // left to learn.
  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    const Form form = FormOf(parameters);
    if (form == Form::kRates) return;
    if (form == Form::kReturns) {
      return AddConsistentReturnsNeeds(parameters, needs);
    }
    // Both forms on states name what they compare in the same way.
    const std::string of = parameters.at("of");
    if (of == "data") {
      needs->State("parameter.data", "post_step");
      needs->State("optimizer_state.data", "post_step");
    } else if (of == "parameter.grad") {
      needs->Gradients();
    } else {
      needs->State(of, parameters.at("point"));
    }
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    auto forms = std::make_unique<SeveralGenerators>();
    forms->Add(NewConsistentRanksGenerator());
    forms->Add(NewConsistentVariablesGenerator());
    forms->Add(NewConsistentRatesGenerator());
    forms->Add(NewConsistentReturnsGenerator());
    return forms;
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    auto forms = std::make_unique<Several<RunObserver>>();
    forms->Add(NewConsistentRanksEvaluator(rules, sink));
    forms->Add(NewConsistentVariablesEvaluator(rules, sink));
    forms->Add(NewConsistentRatesEvaluator(rules, sink));
    forms->Add(NewConsistentReturnsEvaluator(rules, sink));
    return forms;
  }
};

}  // namespace

const Relation* Consistent() {
  static const auto* const kRelation = new ConsistentRelation;
  return kRelation;
}

}  // namespace traincheck
