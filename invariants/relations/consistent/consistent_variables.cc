#include "invariants/relations/consistent/consistent_variables.h"

#include <map>
#include <set>
#include <tuple>

#include "base/json_reader.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/state_block.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

constexpr char kParameters[] = "parameter.data";
// Parameters and what their optimizer keeps of them.
constexpr char kAny[] = "data";

struct PairSpec {
  std::string of;
  std::string a;
  std::string b;

  bool operator<(const PairSpec& other) const {
    return std::tie(of, a, b) < std::tie(other.of, other.a, other.b);
  }

  static absl::StatusOr<PairSpec> Parse(const nlohmann::json& parameters,
                                        const std::string& path) {
    JsonReader reader(parameters, path);
    if (reader.String("across") != "variables") {
      reader.Fail("across", "not \"variables\"");
    }
    const std::string of = reader.String("of");
    if (of != kParameters && of != kAny) {
      reader.Fail("of", "neither \"parameter.data\" nor \"data\"");
    }
    if (reader.String("point") != "post_step") {
      reader.Fail("point", "only \"post_step\"");
    }
    PairSpec pair{of, reader.String("a"), reader.String("b")};
    // One order, so that a pair has one id.
    if (!(pair.a < pair.b)) reader.Fail("b", "does not sort after \"a\"");
    return reader.Finish(pair);
  }
  nlohmann::json ToJson() const {
    return {{"across", "variables"},
            {"of", of},
            {"point", "post_step"},
            {"a", a},
            {"b", b}};
  }
  std::string Describe() const {
    return a + " and " + b +
           " hold equal values whenever an optimizer step ends.";
  }
  // The two names say when the rule applies.
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    needs->State(kParameters, "post_step");
    if (of == kAny) needs->State("optimizer_state.data", "post_step");
  }
};
using PairRule = SpecRule<PairSpec>;

// A single number that the optimizer keeps counts steps, is equal for all
// parameters and means nothing.
bool IsComparable(const ProcessFacts& facts, const BlockEntry& entry) {
  const VariableInfo* info = facts.definitions().Variable(entry.variable);
  if (!info || !entry.data) return false;
  return info->kind == VariableKind::kParameter ||
         (info->kind == VariableKind::kOptimizerState && !info->shape.empty());
}

// Parts the variables of an optimizer by their digests, block after block:
// variables that are in one class at the end were equal in every block. Costs a
// block its entries, where a comparison of all pairs would cost their square.
class Partition {
 public:
  void Add(const ProcessFacts& facts, const StateBlock& block) {
    std::map<std::pair<uint64_t, uint64_t>, uint64_t> split;
    std::map<uint32_t, Member> next;
    for (const BlockEntry& entry : block.entries) {
      if (!IsComparable(facts, entry)) continue;
      Member member;
      if (const auto old = members_.find(entry.variable);
          old != members_.end()) {
        member = old->second;
        // Equal constants say nothing.
        member.varied |= member.digest != *entry.data;
      } else if (started_) {
        continue;  // came later: not equal in every block
      }
      member.digest = *entry.data;
      const auto [part, added] =
          // Members stay together if they were and are equal again.
          split.emplace(std::pair(member.part, member.digest), split.size());
      member.part = part->second;
      next[entry.variable] = member;
    }
    started_ = true;
    members_ = std::move(next);
  }

  // Neighbours by name in each class whose values varied: equality is
  // transitive, so n members need n - 1 pairs.
  void Pairs(const ProcessDefinitions& definitions,
             std::set<PairSpec>* pairs) const {
    std::map<uint64_t, std::map<std::string, VariableKind>> parts;
    for (const auto& [variable, member] : members_) {
      const VariableInfo* info = definitions.Variable(variable);
      if (!info || !member.varied) continue;
      parts[member.part][info->FullName()] = info->kind;
    }
    for (const auto& [part, names] : parts) {
      for (auto name = names.begin(); name != names.end(); ++name) {
        const auto next = std::next(name);
        if (next == names.end()) break;
        // The narrower form records less: the optimizer's state only where a
        // pair asks for it.
        const bool parameters = name->second == VariableKind::kParameter &&
                                next->second == VariableKind::kParameter;
        pairs->insert(
            {parameters ? kParameters : kAny, name->first, next->first});
      }
    }
  }

 private:
  struct Member {
    uint64_t part = 0;
    uint64_t digest = 0;
    bool varied = false;
  };
  std::map<uint32_t, Member> members_;
  bool started_ = false;
};

class PairsSeen : public StateBlocks {
 public:
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    std::set<PairSpec> pairs;
    for (const auto& [optimizer, partition] : partitions_) {
      partition.Pairs(definitions, &pairs);
    }
    for (const PairSpec& pair : pairs) {
      out->Add({pair.ToJson(), Scope::kExperiment, {}});
    }
  }

 private:
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    // A block in which values are missing would part equal variables for good.
    if (block.point != StatePoint::kPostStep || !block.broken.empty()) return;
    partitions_[block.object].Add(facts, block);
  }

  std::map<uint32_t, Partition> partitions_;  // by optimizer
};

using Judged = JudgedRules<PairRule>;

class PairsOfProcess : public StateBlocks {
 public:
  explicit PairsOfProcess(const Judged* judged) : judged_(judged) {
    for (const PairRule& rule : judged->rules) {
      // Most variables are in no rule: these names keep them out of the map of
      // each step.
      names_.insert(rule.spec.a);
      names_.insert(rule.spec.b);
    }
  }
  void Fields(Archive& archive) override {
    StateBlocks::Fields(archive);
    archive(last_);
  }

 private:
  void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
    if (block.point == StatePoint::kPostStep) Judge(facts, block);
  }

  void Judge(const ProcessFacts& facts, const StateBlock& block) {
    std::map<std::string, const BlockEntry*> entries;
    for (const BlockEntry& entry : block.entries) {
      const VariableInfo* info = facts.definitions().Variable(entry.variable);
      if (info && names_.count(info->FullName())) {
        entries[info->FullName()] = &entry;
      }
    }
    for (const PairRule& rule : judged_->rules) {
      const auto a = entries.find(rule.spec.a);
      const auto b = entries.find(rule.spec.b);
      // The optimizer does not hold both, so this step is not a window of the
      // pair.
      if (a == entries.end() || b == entries.end()) continue;
      JudgePair(facts, block, rule, *a->second, *b->second);
    }
  }

  void JudgePair(const ProcessFacts& facts, const StateBlock& block,
                 const PairRule& rule, const BlockEntry& a,
                 const BlockEntry& b) {
    Verdict verdict = NewVerdict(facts, rule.index, block.ordinal);
    verdict.step = block.step;
    if (!a.data || !b.data) {
      MarkUnknown(
          block.broken.empty() ? "a tensor was not recorded" : block.broken,
          &verdict);
    } else if (*a.data != *b.data) {
      verdict.outcome = Outcome::kViolated;
      Explain(facts, rule.spec, a, b, &verdict);
    } else {
      // A value like that of the step before could not have shown that the two
      // follow each other. 0: none was seen.
      uint64_t& last = last_[{rule.index, block.ordinal}];
      verdict.varied = last != 0 && last != *a.data;
      last = *a.data;
    }
    judged_->sink->OnVerdict(verdict);
  }

  static void Explain(const ProcessFacts& facts, const PairSpec& pair,
                      const BlockEntry& a, const BlockEntry& b,
                      Verdict* verdict) {
    if (facts.rank()) verdict->ranks = {*facts.rank()};
    verdict->label = StepLabel(facts, *verdict);
    Finding& finding = verdict->finding;
    finding.variables = {pair.a, pair.b};
    for (const BlockEntry* entry : {&a, &b}) {
      AddOnce(facts.FunctionName(entry->data_writer.function), &finding.apis);
      AddSite(facts, entry->data_writer.site, &finding);
    }
    finding.expected = "equal values";
    finding.seen = "they differ when the optimizer step ends";
  }

  const Judged* const judged_;
  std::set<std::string> names_;  // of the rules' variables
  std::map<std::pair<size_t, uint32_t>, uint64_t> last_;
};

}  // namespace

const Relation* ConsistentVariables() {
  static const auto* const kForm =
      new ProcessRelation<PairSpec, PairsOfProcess>(
          "Consistent", NewSeenGenerator<PairsSeen>);
  return kForm;
}

}  // namespace traincheck
