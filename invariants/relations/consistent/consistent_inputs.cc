#include "invariants/relations/consistent/consistent_inputs.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/state_block.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

nlohmann::json Parameters() {
  return {{"across", "ranks"}, {"of", "inputs"}, {"is", "distinct"}};
}

struct InputsSpec {
  static absl::StatusOr<InputsSpec> Parse(const nlohmann::json& parameters,
                                          const std::string& path) {
    JsonReader reader(parameters, path);
    for (const char* key : {"across", "of", "is"}) {
      const auto only = Parameters()[key].get<std::string>();
      if (reader.String(key) != only) reader.Fail(key, "not \"" + only + "\"");
    }
    return reader.Finish(InputsSpec());
  }
  static std::string Describe() {
    return "Ranks that train replicas of a model are given different data.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static void AddNeeds(CaptureNeeds*) {}
};

using Ranks = std::vector<int32_t>;

// What one rank gave its wrapper.
struct GivenInputs {
  std::optional<int64_t> step;
  std::optional<uint64_t> digest;  // nullopt: not readable
  WriterParts given_by;            // the call of the wrapper
};

// Looks for equal values, while RankComparison looks for different ones.
class InputsComparison : public JoinedRanks {
 public:
  explicit InputsComparison(RuleSink* sink) : sink_(sink) {}

  // REQUIRES: the process has a rank, one of `group`; once a rule and wrapper.
  void Add(const ProcessFacts& facts, size_t rule,
           const ReplicaGroupInfo& group, uint32_t ordinal,
           const GivenInputs& given) {
    if (join_.HasEnded(facts.attempt(), *facts.rank())) return;
    std::set<Ranks>& smaller_groups = smaller_groups_[facts.attempt()];
    // Noted from every rank: a group that splits the model is known to its
    // members only.
    for (const auto& [id, smaller] : facts.definitions().process_groups()) {
      // Only a part of the replicas can be the ranks that split one replica
      // between them.
      if (smaller.ranks.size() >= group.ranks.size()) continue;
      Ranks ranks = smaller.ranks;
      std::sort(ranks.begin(), ranks.end());
      smaller_groups.insert(std::move(ranks));
    }
    ReplicaWindow window;
    window.step = given.step;
    if (given.digest) {
      window.values = {
          {0, calls_.Number(TextOf(given.given_by)), *given.digest}};
    } else {
      window.unknown = "what the model was given could not be read on rank " +
                       std::to_string(*facts.rank());
    }
    // One window a wrapper, because the agent records this once.
    join_.Add({facts.attempt(), rule, group.ranks, ordinal}, *facts.rank(), 0,
              std::move(window));
  }

  void Fields(Archive& archive) { archive(calls_, smaller_groups_, join_); }

 private:
  void OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) override {
    // A window is early if values differ before all ranks are in, and differing
    // values are what this rule asks for.
    if (window.early) return;
    // Groups of ranks with equal inputs, found without comparing each pair.
    std::map<uint64_t, Ranks> by_digest;
    for (const auto& [rank, member] : *window.members) {
      for (const ReplicaValue& value : member.values) {
        by_digest[value.digest].push_back(rank);
      }
    }
    std::vector<Ranks> equal;
    for (const auto& [digest, ranks] : by_digest) {
      if (ranks.size() > 1 && !ShareData(unit.attempt, ranks)) {
        equal.push_back(ranks);
      }
    }
    // By ranks and not by digests, so that the text does not depend on what the
    // data are.
    std::sort(equal.begin(), equal.end());
    Verdict verdict = NewVerdict(unit, window);
    if (!equal.empty()) {
      MarkViolated(unit, window, &verdict);
      verdict.finding = Describe(unit, window, equal);
      // Equal values are a violation even if another rank could not be read.
    } else if (!window.unknown.empty()) {
      verdict.outcome = Outcome::kUnknown;
      verdict.reason = window.unknown;
    }
    sink_->OnVerdict(verdict);
  }

  // What is compared in it all the same brings its groups again (Add).
  void OnOver(const ReplicaUnit& unit) override {
    if (!join_.HasUnits(unit.attempt)) smaller_groups_.erase(unit.attempt);
  }

  // Are all these ranks in one smaller group? Such a group may split a model,
  // whose parts are given the same data.
  bool ShareData(uint32_t attempt, const Ranks& ranks) const {
    const auto groups = smaller_groups_.find(attempt);
    return groups != smaller_groups_.end() &&
           std::any_of(groups->second.begin(), groups->second.end(),
                       [&](const Ranks& group) {
                         return std::includes(group.begin(), group.end(),
                                              ranks.begin(), ranks.end());
                       });
  }

  Finding Describe(const ReplicaUnit& unit, const JudgedWindow& window,
                   const std::vector<Ranks>& equal) const {
    Finding finding;
    finding.expected = "different data on " + RankWords(unit.ranks);
    for (const Ranks& ranks : equal) {
      finding.seen += (finding.seen.empty() ? "" : "; ") + RankWords(ranks) +
                      " gave the model the same in its first two forwards";
      const ReplicaWindow& first = window.members->at(ranks.front());
      AddWriter(PartsOf(calls_.Text(first.values.front().writer)), &finding);
    }
    return finding;
  }

  RuleSink* const sink_;
  TextTable calls_;
  // By attempt, the ranks (sorted) of process groups that are not of all
  // replicas.
  std::map<uint32_t, std::set<Ranks>> smaller_groups_;
};

class InputsOfProcess : public ProcessObserver {
 public:
  explicit InputsOfProcess(RankRules<InputsSpec, InputsComparison>* judged)
      : judged_(judged) {}

  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    if (!event.variable || event.variable->kind != VariableKind::kInputs ||
        !facts.rank()) {
      return;
    }
    uint32_t ordinal = 0;
    const ReplicaGroupInfo* group =
        GroupOfWrapper(facts, event.variable->root, &ordinal);
    // Without evidence of replication ranks may well be meant to get the same
    // data.
    if (!group || group->evidence.empty() || group->ranks.size() < 2) return;
    GivenInputs given;
    if (const auto step = facts.clock().known_step()) given.step = *step;
    if (event.Has(kHasData)) given.digest = event.data;
    if (event.call) {
      given.given_by =
          PartsOf(facts, {event.call->function_id, event.call->site});
    }
    for (const auto& rule : judged_->rules) {
      judged_->comparison.Add(facts, rule.index, *group, ordinal, given);
    }
  }

 private:
  RankRules<InputsSpec, InputsComparison>* const judged_;
};

class InputsSeen : public ProcessObserver {
 public:
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    seen_ |= event.variable && event.variable->kind == VariableKind::kInputs;
  }
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    if (seen_) out->Add({Parameters(), Scope::kGeneral, {}});
  }

 private:
  bool seen_ = false;
};

}  // namespace

const Relation* ConsistentInputs() {
  static const auto* const kForm =
      new RankRelation<InputsSpec, InputsOfProcess, InputsComparison>(
          "Consistent", NewSeenGenerator<InputsSeen>);
  return kForm;
}

}  // namespace traincheck
