#include "invariants/relations/consistent/consistent_rates.h"

#include <cstring>
#include <map>
#include <utility>

#include "base/json_reader.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/rules/rank_comparison.h"
#include "invariants/rules/rank_relation.h"

namespace traincheck {

namespace {

nlohmann::json Parameters() {
  return {{"across", "ranks"}, {"of", "optimizer.lr"}, {"point", "pre_step"}};
}

// The ranks that hold replicas of what a parameter group holds; null: none. The
// first variable of which it is known answers for all: a parameter group has
// one rate.
const ReplicaGroupInfo* GroupOf(const ProcessFacts& facts,
                                const std::vector<uint32_t>& variables) {
  for (const uint32_t variable : variables) {
    const ReplicaGroupInfo* group = ComparableGroup(facts, variable);
    if (group) return group;
  }
  return nullptr;
}

struct RatesSpec {
  static absl::StatusOr<RatesSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    for (const char* key : {"across", "of", "point"}) {
      const auto only = Parameters()[key].get<std::string>();
      if (reader.String(key) != only) reader.Fail(key, "not \"" + only + "\"");
    }
    return reader.Finish(RatesSpec());
  }
  static std::string Describe() {
    return "All ranks that train replicas of a model have equal learning rates "
           "when an optimizer step begins.";
  }
  static RankComparison::Words Words() {
    return {.what = "learning rates when an optimizer step begins",
            .ordinals = RankComparison::Ordinals::kOptimizers};
  }
  static std::vector<const Fact*> Facts() { return {}; }
  // Numbers of optimizers are recorded in every step, whatever the plan.
  static void AddNeeds(CaptureNeeds*) {}
};

class RatesSeen : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (seen_ || !IsOptimizerStep(call)) return;
    for (const auto& [key, variables] : facts.definitions().holds()) {
      seen_ |= key.first == call.object && GroupOf(facts, variables);
    }
  }
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    if (seen_) out->Add({Parameters(), Scope::kGeneral, {}});
  }

 private:
  bool seen_ = false;
};

class RatesOfProcess : public ProcessObserver {
 public:
  explicit RatesOfProcess(RankRules<RatesSpec>* judged) : judged_(judged) {}

  // The rates of the step were recorded when it began, and its clock does not
  // count the step before this call has returned.
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (IsOptimizerStep(call) && outcome == CallOutcome::kReturned &&
        facts.rank()) {
      Add(facts, call);
    }
  }

 private:
  void Add(const ProcessFacts& facts, const Call& step);

  RankRules<RatesSpec>* const judged_;
};

void RatesOfProcess::Add(const ProcessFacts& facts, const Call& step) {
  const auto index = facts.clock().OptimizerSteps(step.object);
  const Optimizer* optimizer = facts.ownership().Find(step.object);
  // Without the optimizer's own count the step cannot be aligned with those of
  // other ranks.
  if (!index || !optimizer) return;
  // A window for each replica group: parameter groups of one optimizer may hold
  // replicas of different ranks.
  std::map<const std::vector<int32_t>*, RankWindow, PointedRanksLess> windows;
  for (const auto& [key, variables] : facts.definitions().holds()) {
    if (key.first != step.object) continue;
    const ReplicaGroupInfo* group = GroupOf(facts, variables);
    if (!group) continue;
    RankWindow& window = windows[&group->ranks];
    const auto rate =
        facts.optimizer_books().LearningRate(step.object, key.second);
    if (!rate) {
      window.unknown = "the learning rate was not recorded on " + facts.Name();
      continue;
    }
    // By their bits: replicas compute the same rate or another one, and nothing
    // in between.
    uint64_t bits = 0;
    std::memcpy(&bits, &*rate, sizeof bits);
    window.values.push_back(
        {.name = "learning rate of group " + std::to_string(key.second),
         .digest = bits,
         // The shortest text that reads as this number: rates that differ in
         // the last bit are shown as different.
         .shown = nlohmann::json(*rate).dump(),
         .writer = {step.function_id, step.site}});
  }
  for (auto& [ranks, window] : windows) {
    window.ranks = *ranks;
    window.ordinal = optimizer->ordinal;
    window.index = *index;
    window.step = facts.clock().known_step();
    judged_->comparison.Add(facts, judged_->indices, window);
  }
}

}  // namespace

const Relation* ConsistentRates() {
  static const auto* const kForm = new RankRelation<RatesSpec, RatesOfProcess>(
      "Consistent", NewSeenGenerator<RatesSeen>);
  return kForm;
}

}  // namespace traincheck
