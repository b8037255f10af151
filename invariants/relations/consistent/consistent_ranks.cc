#include "invariants/relations/consistent/consistent_ranks.h"

#include <map>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "invariants/relations/consistent/state_spec.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/state_block.h"

namespace traincheck {

namespace {

struct ReplicaSpec {
  StateSpec state;

  static absl::StatusOr<ReplicaSpec> Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
    JsonReader reader(parameters, path);
    if (reader.String("across") != "ranks") {
      reader.Fail("across", "not \"ranks\"");
    }
    const StateSpec state = ReadStateSpec(&reader);
    return reader.Finish(ReplicaSpec{state});
  }
  nlohmann::json ToJson() const {
    nlohmann::json parameters = {{"across", "ranks"}};
    WriteStateSpec(state, &parameters);
    return parameters;
  }
  std::string Describe() const {
    return "All ranks that hold replicas of a model have equal " +
           state.Describe() + ".";
  }
  RankComparison::Words Words() const { return WordsOf(state); }
  // Evidence of replication says when it applies.
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    if (state.grad) return needs->Gradients();
    needs->State(state.Of(), PointName(state.point));
  }
};

// A hypothesis for each kind of state that was recorded of variables with
// evidence of replication, at the points at which it was.
class ReplicasSeen : public StateBlocks {
 public:
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const StateSpec& state : seen_) {
      out->Add({ReplicaSpec{state}.ToJson(), Scope::kGeneral, {}});
    }
  }

 private:
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    for (const BlockEntry& entry : block.entries) {
      const VariableInfo* info = facts.definitions().Variable(entry.variable);
      if (!info || !ComparableGroup(facts, entry.variable)) continue;
      StateSpec spec{info->kind, false, block.point};
      if (entry.data && !spec.Of().empty()) seen_.insert(spec);
      spec.grad = true;
      // Ranks have averaged their gradients when the step begins, and not
      // before.
      if (entry.grad && block.point == StatePoint::kPreStep &&
          !spec.Of().empty()) {
        seen_.insert(spec);
      }
    }
  }

  std::set<StateSpec> seen_;
};

class ReplicasOfProcess : public StateBlocks {
 public:
  explicit ReplicasOfProcess(RankRules<ReplicaSpec>* judged) : judged_(judged) {
    for (const auto& rule : judged->rules) {
      // Rules on the same state share its windows.
      rules_[rule.spec.state].push_back(rule.index);
    }
  }

 private:
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    // Without a count there is nothing to align the block with.
    if (!facts.rank() || !block.index) return;
    for (const auto& [spec, rules] : rules_) {
      if (spec.point == block.point) Add(facts, block, spec, rules);
    }
  }

  void Add(const ProcessFacts& facts, const StateBlock& block,
           const StateSpec& spec, const std::vector<size_t>& rules);

  RankRules<ReplicaSpec>* const judged_;
  std::map<StateSpec, std::vector<size_t>> rules_;  // indices
};

// Hands the values of one state of one block to the comparison, as a window for
// each replica group.
void ReplicasOfProcess::Add(const ProcessFacts& facts, const StateBlock& block,
                            const StateSpec& spec,
                            const std::vector<size_t>& rules) {
  // One a group. Keys are the lists in the definitions: a list of a thousand
  // ranks is copied once a window and not once a variable.
  std::map<const std::vector<int32_t>*, RankWindow, PointedRanksLess> windows;
  for (const BlockEntry& entry : block.entries) {
    const VariableInfo* info = facts.definitions().Variable(entry.variable);
    const ReplicaGroupInfo* group = ComparableGroup(facts, entry.variable);
    // Variables without evidence of replication (sharded ones) may rightly
    // differ.
    if (!info || info->kind != spec.kind || !group) continue;
    RankWindow& window = windows[&group->ranks];
    const std::optional<uint64_t> value = ValueOf(spec, entry);
    if (!value) {
      window.unknown = info->FullName() + " could not be read on rank " +
                       std::to_string(*facts.rank());
      continue;
    }
    window.values.push_back({.name = info->FullName(),
                             .digest = *value,
                             .writer = WriterOf(spec, entry)});
  }
  for (auto& [ranks, window] : windows) {
    window.ranks = *ranks;
    window.ordinal = block.ordinal;
    window.index = *block.index;
    window.step = block.step;
    // What makes the whole block unknown is a better reason than one tensor
    // that could not be read.
    if (!block.broken.empty()) window.unknown = block.broken;
    judged_->comparison.Add(facts, rules, window);
  }
}

}  // namespace

const Relation* ConsistentRanks() {
  static const auto* const kForm =
      new RankRelation<ReplicaSpec, ReplicasOfProcess>(
          "Consistent", NewSeenGenerator<ReplicasSeen>);
  return kForm;
}

}  // namespace traincheck
