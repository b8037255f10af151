#include "invariants/relations/consistent/consistent_groups.h"

#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invariants/relations/consistent/state_spec.h"
#include "invariants/rules/rank_groups.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/state_block.h"

namespace traincheck {

namespace {

struct GroupSpec {
  StateSpec state;
  GroupKind group;
  // One of both.
  std::string variable = {};  // a full name
  std::string role = {};      // VariableInfo::ClassRole()

  static absl::StatusOr<GroupSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
    JsonReader reader(parameters, path);
    GroupSpec spec;
    if (reader.String("across") != "ranks") {
      reader.Fail("across", "not \"ranks\"");
    }
    spec.state = ReadStateSpec(&reader);
    // Blocks of that point are those of wrappers, and these rules are for state
    // that no wrapper replicates.
    if (spec.state.point == StatePoint::kForwardBegin) {
      reader.Fail("point", "neither \"pre_step\" nor \"post_step\"");
    }
    const auto group =
        GroupKind::Parse(reader.Object("group"), reader.PathOf("group"));
    reader.Adopt(group.status());
    if (group.ok()) spec.group = *group;
    // Exactly one of both: the other key would be unknown to the reader, and an
    // error.
    const char* const key = reader.Has("role") ? "role" : "variable";
    std::string& name = reader.Has("role") ? spec.role : spec.variable;
    name = reader.String(key);
    if (name.empty()) reader.Fail(key, "empty");
    return reader.Finish(spec);
  }
  nlohmann::json ToJson() const {
    nlohmann::json parameters = {{"across", "ranks"},
                                 {"group", group.ToJson()}};
    WriteStateSpec(state, &parameters);
    parameters[role.empty() ? "variable" : "role"] =
        role.empty() ? variable : role;
    return parameters;
  }
  std::string Describe() const {
    const size_t dot = role.rfind('.');
    const std::string who =
        role.empty() ? variable
                     : role.substr(dot + 1) + " of each " + role.substr(0, dot);
    return "Equal on " + group.Describe() + ": " + state.Describe() + ", " +
           who + ".";
  }
  RankComparison::Words Words() const { return WordsOf(state); }
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    if (state.grad) return needs->Gradients();
    needs->State(state.Of(), PointName(state.point));
  }
  bool IsAbout(const VariableInfo& info) const {
    return info.kind == state.kind &&
           (role.empty() ? info.FullName() == variable
                         : info.ClassRole() == role);
  }
};

// Which variables showed a value at which point in which kind of group.
class GroupsSeen : public StateBlocks {
 public:
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    groups_.OnDefinition(type);
  }
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [variable, grad, point, group] : seen_) {
      const VariableInfo* info = definitions.Variable(variable);
      GroupSpec spec{.state = {info->kind, grad, point}, .group = group};
      // GroupKind() stands for all ranks: a rule on them implies those on
      // smaller groups.
      const bool has_all =
          seen_.count({variable, grad, point, GroupKind()}) > 0;
      Hypothesis::Broader role;
      // By role, one rule covers a layer wherever it stands; by name it is
      // needed only where that does not hold.
      if (!info->owner_class.empty()) {
        spec.role = info->ClassRole();
        role = {spec.ToJson(), "a role says it of all"};
        Add(spec, has_all, {}, out);
        // The rule on the variable alone follows, with the role as the broader
        // one.
        spec.role.clear();
      }
      spec.variable = info->FullName();
      Add(spec, has_all, role, out);
    }
  }

 private:
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    if (block.point == StatePoint::kForwardBegin) return;
    // Each group is a hypothesis for each variable. Which of them hold is found
    // where the same run is judged.
    const std::vector<RankGroup>& groups = groups_.Of(facts);
    if (groups.empty()) return;
    for (const BlockEntry& entry : block.entries) {
      const VariableInfo* info = facts.definitions().Variable(entry.variable);
      if (!info || info->kind == VariableKind::kOptimizerState) continue;
      for (const RankGroup& group : groups) {
        // What a wrapper replicates is left to the rules on replicas.
        if (AreReplicas(facts, entry.variable, group.ranks)) continue;
        Note(entry, block.point, group.kind);
      }
    }
  }

  static void Add(GroupSpec spec, bool has_all, const Hypothesis::Broader& role,
                  HypothesisSet* out) {
    Hypothesis hypothesis{spec.ToJson(), Scope::kExperiment, {}};
    if (!role.parameters.is_null()) hypothesis.broader.push_back(role);
    spec.group = GroupKind();
    if (has_all) {
      hypothesis.broader.push_back({spec.ToJson(), "it holds on all ranks"});
    }
    out->Add(std::move(hypothesis));
  }

  void Note(const BlockEntry& entry, StatePoint point, const GroupKind& group) {
    // Gradients as the step takes them, data as it leaves them.
    if (point == StatePoint::kPreStep && entry.grad) {
      seen_.insert({entry.variable, true, point, group});
    } else if (point == StatePoint::kPostStep && entry.data) {
      seen_.insert({entry.variable, false, point, group});
    }
  }

  KnownGroups groups_;
  std::set<std::tuple<uint32_t, bool, StatePoint, GroupKind>> seen_;
};

class GroupsOfProcess : public StateBlocks {
 public:
  explicit GroupsOfProcess(RankRules<GroupSpec>* judged) : judged_(judged) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    groups_.OnDefinition(type);
    // Rules are found by the variable's name and class, which its definition
    // says.
    if (type == RecordType::kVariableDef) rules_of_.erase(id);
  }

 private:
  using GroupRule = SpecRule<GroupSpec>;

  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    // Steps that are not counted cannot be aligned with those of other ranks.
    if (!block.index) return;
    // One a rule, filled variable by variable: all variables of a role are
    // compared at once.
    std::map<const GroupRule*, RankWindow> windows;
    for (const BlockEntry& entry : block.entries) {
      const VariableInfo* info = facts.definitions().Variable(entry.variable);
      if (!info) continue;
      for (const GroupRule* rule : RulesOf(entry.variable, *info)) {
        if (rule->spec.state.point != block.point) continue;
        const std::vector<int32_t>* ranks = RanksOf(facts, rule->spec.group);
        // Replicas of a wrapper are consistent_ranks.h's: two rules would
        // report one error.
        if (!ranks || AreReplicas(facts, entry.variable, *ranks)) continue;
        RankWindow& window = windows[rule];
        if (window.ranks.empty()) window.ranks = *ranks;
        AddValue(facts, rule->spec, *info, entry, &window);
      }
    }
    for (auto& [rule, window] : windows) {
      window.ordinal = block.ordinal;
      window.index = *block.index;
      window.step = block.step;
      // What makes the whole block unknown is a better reason than one tensor
      // that could not be read.
      if (!block.broken.empty()) window.unknown = block.broken;
      judged_->comparison.Add(facts, rule->index, window);
    }
  }

  // The rules that are about the variable. Each name is compared with all rules
  // once and not at each step.
  const std::vector<const GroupRule*>& RulesOf(uint32_t variable,
                                               const VariableInfo& info) {
    const auto [found, added] = rules_of_.try_emplace(variable);
    if (!added) return found->second;
    for (const GroupRule& rule : judged_->rules) {
      if (rule.spec.IsAbout(info)) found->second.push_back(&rule);
    }
    return found->second;
  }

  // The ranks of the group of this kind that the process is in; null: it is in
  // none.
  const std::vector<int32_t>* RanksOf(const ProcessFacts& facts,
                                      const GroupKind& kind) {
    for (const RankGroup& group : groups_.Of(facts)) {
      if (group.kind == kind) return &group.ranks;
    }
    return nullptr;
  }

  static void AddValue(const ProcessFacts& facts, const GroupSpec& spec,
                       const VariableInfo& info, const BlockEntry& entry,
                       RankWindow* window) {
    const std::optional<uint64_t> value = ValueOf(spec.state, entry);
    if (!value) {
      window->unknown = info.FullName() + " could not be read on rank " +
                        std::to_string(*facts.rank());
      return;
    }
    window->values.push_back({.name = info.FullName(),
                              .digest = *value,
                              .writer = WriterOf(spec.state, entry)});
  }

  RankRules<GroupSpec>* const judged_;
  KnownGroups groups_;
  std::unordered_map<uint32_t, std::vector<const GroupRule*>> rules_of_;
};

}  // namespace

const Relation* ConsistentGroups() {
  static const auto* const kForm = new RankRelation<GroupSpec, GroupsOfProcess>(
      "Consistent", NewSeenGenerator<GroupsSeen>);
  return kForm;
}

}  // namespace traincheck
