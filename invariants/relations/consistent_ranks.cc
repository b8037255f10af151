#include "invariants/relations/consistent_ranks.h"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "invariants/relations/rank_comparison.h"
#include "invariants/relations/state_block.h"
#include "invariants/relations/state_spec.h"

namespace traincheck {

namespace {

StateSpec ParseSpec(const nlohmann::json& parameters, const std::string& path,
                    absl::Status* status) {
  JsonReader reader(parameters, path);
  if (reader.String("across") != "ranks") {
    reader.Fail("across", "not \"ranks\"");
  }
  const StateSpec spec = ReadStateSpec(&reader);
  *status = reader.Finish();
  return spec;
}

class HypothesisMaker : public Generator {
 public:
  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(&seen_));
    return processes_.back().get();
  }
  void EndRun() override {}

  std::vector<Hypothesis> Take() override {
    std::vector<Hypothesis> result;
    for (const StateSpec& spec : seen_) {
      nlohmann::json parameters = {{"across", "ranks"}};
      WriteStateSpec(spec, &parameters);
      result.push_back({std::move(parameters), Scope::kGeneral, {}});
    }
    return result;
  }

 private:
  class Process : public StateBlocks {
   public:
    explicit Process(std::set<StateSpec>* seen) : seen_(seen) {}

   private:
    void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
      for (const BlockEntry& entry : block.entries) {
        const VariableInfo* info = facts.definitions().Variable(entry.variable);
        if (!info || !ComparableGroup(facts, entry.variable)) continue;
        StateSpec spec{info->kind, false, block.point};
        if (entry.data && !spec.Of().empty()) seen_->insert(spec);
        spec.grad = true;
        if (entry.grad && block.point == StatePoint::kPreStep &&
            !spec.Of().empty()) {
          seen_->insert(spec);
        }
      }
    }

    std::set<StateSpec>* const seen_;
  };

  std::vector<std::unique_ptr<Process>> processes_;
  std::set<StateSpec> seen_;
};

class Evaluator : public RankEvaluator {
 public:
  Evaluator(const std::vector<Rule>& rules, RuleSink* sink)
      : RankEvaluator(sink) {
    for (size_t i = 0; i < rules.size(); ++i) {
      absl::Status status;
      const StateSpec spec =
          ParseSpec(rules[i].invariant->parameters, "", &status);
      if (!status.ok()) continue;
      specs_[i] = spec;
      comparison().SetWords(i, {spec.Describe(), /*variables=*/true});
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }

 private:
  class Process : public StateBlocks {
   public:
    explicit Process(Evaluator* run) : run_(run) {}
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      StateBlocks::OnEnd(facts, end);
      run_->comparison().EndProcess(facts, end);
    }

   private:
    void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
      for (const auto& [rule, spec] : run_->specs_) {
        if (spec.point == block.point) run_->Add(facts, block, rule, spec);
      }
    }

    Evaluator* const run_;
  };

  void Add(const ProcessFacts& facts, const StateBlock& block, size_t rule,
           const StateSpec& spec);

  std::map<size_t, StateSpec> specs_;  // by rule
  std::vector<std::unique_ptr<Process>> processes_;
};

void Evaluator::Add(const ProcessFacts& facts, const StateBlock& block,
                    size_t rule, const StateSpec& spec) {
  if (!facts.rank() || !block.index) return;
  std::map<std::vector<int32_t>, RankWindow> windows;
  for (const BlockEntry& entry : block.entries) {
    const VariableInfo* info = facts.definitions().Variable(entry.variable);
    const ReplicaGroupInfo* group = ComparableGroup(facts, entry.variable);
    if (!info || info->kind != spec.kind || !group) continue;
    RankWindow& window = windows[group->ranks];
    const std::optional<uint64_t> value = ValueOf(spec, entry);
    if (!value) {
      window.unknown = info->FullName() + " could not be read on rank " +
                       std::to_string(*facts.rank());
      continue;
    }
    const Writer writer = WriterOf(spec, entry);
    window.values.push_back({.name = info->FullName(),
                             .digest = *value,
                             .function = facts.FunctionName(writer.function),
                             .site = facts.definitions().Site(writer.site)});
  }
  for (auto& [ranks, window] : windows) {
    window.ranks = ranks;
    window.ordinal = block.ordinal;
    window.index = *block.index;
    window.step = block.step;
    if (!block.broken.empty()) window.unknown = block.broken;
    comparison().Add(facts, rule, std::move(window));
  }
}

}  // namespace

absl::Status CheckConsistentRanks(const nlohmann::json& parameters,
                                  const std::string& path) {
  absl::Status status;
  ParseSpec(parameters, path, &status);
  return status;
}

std::string DescribeConsistentRanks(const nlohmann::json& parameters) {
  absl::Status status;
  const StateSpec spec = ParseSpec(parameters, "", &status);
  return "All ranks that hold replicas of a model have equal " +
         spec.Describe() + ".";
}

std::unique_ptr<Generator> NewConsistentRanksGenerator() {
  return std::make_unique<HypothesisMaker>();
}

std::unique_ptr<RunObserver> NewConsistentRanksEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink) {
  return std::make_unique<Evaluator>(rules, sink);
}

}  // namespace traincheck
