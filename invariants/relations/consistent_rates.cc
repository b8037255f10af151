#include "invariants/relations/consistent_rates.h"

#include <cstring>
#include <map>
#include <utility>

#include "invariants/json_reader.h"
#include "invariants/relations/hypothesis_set.h"
#include "invariants/relations/rank_comparison.h"

namespace traincheck {

namespace {

nlohmann::json Parameters() {
  return {{"across", "ranks"}, {"of", "optimizer.lr"}, {"point", "pre_step"}};
}

// The ranks that hold replicas of what a parameter group holds; null: none.
const ReplicaGroupInfo* GroupOf(const ProcessFacts& facts,
                                const std::vector<uint32_t>& variables) {
  for (const uint32_t variable : variables) {
    const ReplicaGroupInfo* group = ComparableGroup(facts, variable);
    if (group) return group;
  }
  return nullptr;
}

class SeenInProcess : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (seen_ || !IsOptimizerStep(call)) return;
    for (const auto& [key, variables] : facts.definitions().holds()) {
      seen_ |= key.first == call.object && GroupOf(facts, variables);
    }
  }
  void Collect(const Definitions& definitions, HypothesisSet* out) const {
    if (seen_) out->Add({Parameters(), Scope::kGeneral, {}});
  }

 private:
  bool seen_ = false;
};

class Evaluator : public RankEvaluator {
 public:
  Evaluator(std::vector<size_t> rules, RuleSink* sink)
      : RankEvaluator(sink), rules_(std::move(rules)) {
    for (const size_t rule : rules_) {
      comparison().SetWords(
          rule, {.what = "learning rates when an optimizer step begins"});
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }

 private:
  class Process : public ProcessObserver {
   public:
    explicit Process(Evaluator* run) : run_(run) {}
    // Its rates stand in the records when it begins, its clock is that before.
    void OnCallEnd(const ProcessFacts& facts, const Call& call,
                   CallOutcome outcome) override {
      if (!run_->rules_.empty() && IsOptimizerStep(call) &&
          outcome == CallOutcome::kReturned && facts.rank()) {
        run_->Add(facts, call);
      }
    }
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      run_->comparison().EndProcess(facts, end);
    }

   private:
    Evaluator* const run_;
  };

  void Add(const ProcessFacts& facts, const Call& step);

  const std::vector<size_t> rules_;
  std::vector<std::unique_ptr<Process>> processes_;
};

void Evaluator::Add(const ProcessFacts& facts, const Call& step) {
  const auto index = facts.clock().OptimizerSteps(step.object);
  const Optimizer* optimizer = facts.ownership().Find(step.object);
  if (!index || !optimizer) return;
  std::map<std::vector<int32_t>, RankWindow> windows;
  for (const auto& [key, variables] : facts.definitions().holds()) {
    if (key.first != step.object) continue;
    const ReplicaGroupInfo* group = GroupOf(facts, variables);
    if (!group) continue;
    RankWindow& window = windows[group->ranks];
    const auto rate = facts.LearningRate(step.object, key.second);
    if (!rate) {
      window.unknown = "the learning rate was not recorded on " + facts.Name();
      continue;
    }
    uint64_t bits = 0;
    std::memcpy(&bits, &*rate, sizeof bits);
    window.values.push_back(
        {.name = "learning rate of group " + std::to_string(key.second),
         .digest = bits,
         .shown = nlohmann::json(*rate).dump(),
         .function = facts.FunctionName(step.function_id),
         .site = facts.definitions().Site(step.site)});
  }
  for (auto& [ranks, window] : windows) {
    window.ranks = ranks;
    window.ordinal = optimizer->ordinal;
    window.index = *index;
    window.step = facts.clock().known_step();
    for (const size_t rule : rules_) comparison().Add(facts, rule, window);
  }
}

}  // namespace

absl::Status CheckConsistentRates(const nlohmann::json& parameters,
                                  const std::string& path) {
  JsonReader reader(parameters, path);
  for (const char* key : {"across", "of", "point"}) {
    const auto only = Parameters()[key].get<std::string>();
    if (reader.String(key) != only) reader.Fail(key, "not \"" + only + "\"");
  }
  return reader.Finish();
}

std::string DescribeConsistentRates() {
  return "All ranks that train replicas of a model have equal learning rates "
         "when an optimizer step begins.";
}

std::unique_ptr<Generator> NewConsistentRatesGenerator() {
  return std::make_unique<SeenGenerator<SeenInProcess>>();
}

std::unique_ptr<RunObserver> NewConsistentRatesEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink) {
  std::vector<size_t> mine;
  for (size_t i = 0; i < rules.size(); ++i) {
    if (CheckConsistentRates(rules[i].invariant->parameters, "").ok()) {
      mine.push_back(i);
    }
  }
  return std::make_unique<Evaluator>(std::move(mine), sink);
}

}  // namespace traincheck
