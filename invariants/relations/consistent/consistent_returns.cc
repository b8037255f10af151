#include "invariants/relations/consistent/consistent_returns.h"

#include <set>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/calls_across_ranks.h"
#include "invariants/rules/function_match.h"
#include "invariants/trace/call_category.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// Functions that returned a number or a tensor whose content was told, where
// ranks train replicas.
class ReturnsSeen : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    // A function that has told one result is not decoded again.
    if (call.result.empty() || !call.function ||
        seen_.count(call.function_id) || ReplicaRanks(facts).empty()) {
      return;
    }
    // What a model computes of its own batch differs.
    if (HasCategory(call, CallCategory::kForward)) return;
    const auto result = ResultOf(call, facts.definitions());
    if (!result) return;
    // A tensor without a digest cannot be compared, and a rule on it would be
    // unknown in each window.
    const auto* tensor = result->Get<TensorValue>();
    const bool told = result->Get<int64_t>() || result->Get<double>() ||
                      (tensor && tensor->digest);
    if (told) seen_.insert(call.function_id);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const uint32_t id : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      const FunctionMatch match{Level::kName, function->name};
      out->Add(
          {{{"across", "ranks"}, {"of", "return"}, {"function", ToJson(match)}},
           // A function of the user's is known to this experiment alone.
           match.IsGeneral() ? Scope::kGeneral : Scope::kExperiment,
           {}});
    }
  }

 private:
  std::set<uint32_t> seen_;
};

}  // namespace

const Relation* ConsistentReturns() {
  static const Relation* const kForm =
      NewCallsAcrossRanks("Consistent", NewSeenGenerator<ReturnsSeen>);
  return kForm;
}

}  // namespace traincheck
