#include "invariants/relations/consistent_returns.h"

#include <set>
#include <utility>

#include "invariants/facts/call_values.h"
#include "invariants/relations/calls_across_ranks.h"
#include "invariants/relations/hypothesis_set.h"

namespace traincheck {

namespace {

RankCallSpec ParseSpec(const nlohmann::json& parameters,
                       const std::string& path, absl::Status* status) {
  RankCallSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("across") != "ranks") {
    reader.Fail("across", "not \"ranks\"");
  }
  if (reader.String("of") != "return") reader.Fail("of", "not \"return\"");
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  *status = reader.Finish();
  return spec;
}

RankCallSpec SpecOf(const nlohmann::json& parameters) {
  absl::Status status;
  return ParseSpec(parameters, "", &status);
}

// Functions that returned a number or a tensor whose content was told, where
// ranks train replicas.
class SeenInProcess : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (call.result.empty() || !call.function ||
        seen_.count(call.function_id) || ReplicaRanks(facts).empty()) {
      return;
    }
    // What a model computes of its own batch differs.
    if (HasCategory(call, CallCategory::kForward)) return;
    const auto result = ResultOf(call, facts.definitions());
    if (!result) return;
    const auto* tensor = result->Get<TensorValue>();
    const bool told = result->Get<int64_t>() || result->Get<double>() ||
                      (tensor && tensor->digest);
    if (told) seen_.insert(call.function_id);
  }

  void Collect(const Definitions& definitions, HypothesisSet* out) const {
    for (const uint32_t id : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      const FunctionMatch match{Level::kName, function->name};
      out->Add(
          {{{"across", "ranks"}, {"of", "return"}, {"function", ToJson(match)}},
           match.IsGeneral() ? Scope::kGeneral : Scope::kExperiment,
           {}});
    }
  }

 private:
  std::set<uint32_t> seen_;
};

}  // namespace

absl::Status CheckConsistentReturns(const nlohmann::json& parameters,
                                    const std::string& path) {
  absl::Status status;
  ParseSpec(parameters, path, &status);
  return status;
}

std::string DescribeConsistentReturns(const nlohmann::json& parameters) {
  return "On all ranks that train replicas of a model, " +
         SpecOf(parameters).What() + " is the same.";
}

void AddConsistentReturnsNeeds(const nlohmann::json& parameters,
                               CaptureNeeds* needs) {
  CallContent& content = needs->Calls(SpecOf(parameters).function.text);
  content.returns = true;
  content.digests.insert("return");
}

std::unique_ptr<Generator> NewConsistentReturnsGenerator() {
  return std::make_unique<SeenGenerator<SeenInProcess>>();
}

std::unique_ptr<RunObserver> NewConsistentReturnsEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink) {
  std::vector<RankCallRule> mine;
  for (size_t i = 0; i < rules.size(); ++i) {
    absl::Status status;
    RankCallSpec spec = ParseSpec(rules[i].invariant->parameters, "", &status);
    if (status.ok()) mine.push_back({i, std::move(spec)});
  }
  return NewCallsAcrossRanksEvaluator(std::move(mine), sink);
}

}  // namespace traincheck
