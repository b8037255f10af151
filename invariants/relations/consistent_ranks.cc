#include "invariants/relations/consistent_ranks.h"

#include <algorithm>
#include <map>
#include <set>
#include <unordered_map>

#include "invariants/hash.h"
#include "invariants/relations/replica_join.h"
#include "invariants/relations/state_block.h"
#include "invariants/relations/state_spec.h"
#include "invariants/relations/words.h"

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

// Null: nothing says that this variable has replicas on other ranks.
const ReplicaGroupInfo* ComparableGroup(const ProcessFacts& facts,
                                        uint32_t variable) {
  const ReplicaGroupInfo* group = facts.ownership().GroupOf(variable);
  if (!group || group->evidence.empty() || group->ranks.size() < 2) {
    return nullptr;
  }
  return group;
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

// Texts shared by all processes of the run, by number.
class TextTable {
 public:
  uint32_t Number(const std::string& text) {
    const auto [found, added] =
        numbers_.emplace(text, static_cast<uint32_t>(texts_.size()));
    if (added) texts_.push_back(text);
    return found->second;
  }
  // "" if there is none of this number.
  std::string Text(uint32_t number) const {
    return number < texts_.size() ? texts_[number] : "";
  }
  void Fields(Archive& archive) {
    archive(texts_);
    numbers_.clear();
    for (uint32_t i = 0; i < texts_.size(); ++i) numbers_[texts_[i]] = i;
  }

 private:
  std::unordered_map<std::string, uint32_t> numbers_;
  std::vector<std::string> texts_;
};

class Evaluator : public RunObserver, private ReplicaJoinListener {
 public:
  Evaluator(const std::vector<Rule>& rules, RuleSink* sink)
      : sink_(sink), join_(this) {
    for (size_t i = 0; i < rules.size(); ++i) {
      absl::Status status;
      const StateSpec spec =
          ParseSpec(rules[i].invariant->parameters, "", &status);
      if (status.ok()) specs_[i] = spec;
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }

  void EndRun() override { join_.EndRun(); }
  void GiveUpRank(uint32_t attempt, int32_t rank,
                  const std::string& reason) override {
    join_.EndRank(attempt, rank, reason);
  }

  void Fields(Archive& archive) override {
    archive(variables_, writers_, join_);
  }

 private:
  class Process : public StateBlocks {
   public:
    explicit Process(Evaluator* run) : run_(run) {}
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      StateBlocks::OnEnd(facts, end);
      if (!facts.rank() || facts.is_worker()) return;
      run_->join_.EndRank(facts.attempt(), *facts.rank(), EndWords(facts, end));
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
  uint32_t WriterNumber(const ProcessFacts& facts, const Writer& writer);
  void OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) override;
  Finding Describe(const ReplicaUnit& unit, const JudgedWindow& window,
                   const StateSpec& spec) const;

  RuleSink* const sink_;
  std::map<size_t, StateSpec> specs_;  // by rule
  std::vector<std::unique_ptr<Process>> processes_;
  TextTable variables_;  // full names
  TextTable writers_;    // function, newline, site
  ReplicaJoin join_;
};

uint32_t Evaluator::WriterNumber(const ProcessFacts& facts,
                                 const Writer& writer) {
  return writers_.Number(facts.FunctionName(writer.function) + "\n" +
                         facts.definitions().Site(writer.site));
}

void Evaluator::Add(const ProcessFacts& facts, const StateBlock& block,
                    size_t rule, const StateSpec& spec) {
  if (!facts.rank() || !block.index) return;
  std::map<std::vector<int32_t>, ReplicaWindow> windows;
  for (const BlockEntry& entry : block.entries) {
    const VariableInfo* info = facts.definitions().Variable(entry.variable);
    const ReplicaGroupInfo* group = ComparableGroup(facts, entry.variable);
    if (!info || info->kind != spec.kind || !group) continue;
    ReplicaWindow& window = windows[group->ranks];
    const std::optional<uint64_t> value = ValueOf(spec, entry);
    if (!value) {
      window.unknown = info->FullName() + " could not be read on rank " +
                       std::to_string(*facts.rank());
      continue;
    }
    window.values.push_back({variables_.Number(info->FullName()),
                             WriterNumber(facts, WriterOf(spec, entry)),
                             *value});
  }
  for (auto& [ranks, window] : windows) {
    window.step = static_cast<int64_t>(block.step);
    if (!block.broken.empty()) window.unknown = block.broken;
    std::sort(window.values.begin(), window.values.end(),
              [](const ReplicaValue& a, const ReplicaValue& b) {
                return a.variable < b.variable;
              });
    join_.Add({facts.attempt(), rule, ranks, block.ordinal}, *facts.rank(),
              *block.index, std::move(window));
  }
}

// The digest that most members hold, per variable; the members that hold
// another. With two members both do.
struct Disagreement {
  std::set<int32_t> odd;
  uint32_t writer = 0;
};

using Disagreements = std::map<uint32_t, Disagreement>;

Disagreement Judge(const std::map<uint64_t, std::vector<int32_t>>& by_digest) {
  Disagreement result;
  const auto most = std::max_element(by_digest.begin(), by_digest.end(),
                                     [](const auto& a, const auto& b) {
                                       return a.second.size() < b.second.size();
                                     });
  const bool majority = most->second.size() > 1 && [&] {
    for (auto it = by_digest.begin(); it != by_digest.end(); ++it) {
      if (it != most && it->second.size() == most->second.size()) return false;
    }
    return true;
  }();
  for (const auto& [digest, ranks] : by_digest) {
    if (majority && ranks == most->second) continue;
    result.odd.insert(ranks.begin(), ranks.end());
  }
  return result;
}

Disagreements FindDisagreements(
    const std::map<int32_t, ReplicaWindow>& members) {
  std::map<uint32_t, std::map<uint64_t, std::vector<int32_t>>> table;
  std::map<uint32_t, uint32_t> writers;
  for (const auto& [rank, window] : members) {
    for (const ReplicaValue& value : window.values) {
      table[value.variable][value.digest].push_back(rank);
      writers.emplace(value.variable, value.writer);
    }
  }
  Disagreements result;
  for (const auto& [variable, by_digest] : table) {
    if (by_digest.size() < 2) continue;
    result[variable] = Judge(by_digest);
    result[variable].writer = writers[variable];
  }
  return result;
}

Finding Evaluator::Describe(const ReplicaUnit& unit, const JudgedWindow& window,
                            const StateSpec& spec) const {
  const Disagreements disagreements = FindDisagreements(*window.members);
  Finding finding;
  std::set<int32_t> odd;
  std::set<std::string> names;
  std::map<std::string, std::string> writer_of;  // by variable name
  for (const auto& [variable, disagreement] : disagreements) {
    odd.insert(disagreement.odd.begin(), disagreement.odd.end());
    names.insert(variables_.Text(variable));
    writer_of[variables_.Text(variable)] = writers_.Text(disagreement.writer);
  }
  finding.variables.assign(names.begin(), names.end());
  for (const auto& [name, writer] : writer_of) {
    const size_t split = writer.find('\n');
    AddOnce(writer.substr(0, split), &finding.apis);
    AddOnce(writer.substr(split + 1), &finding.sites);
  }
  const size_t compared = window.members->begin()->second.values.size();
  finding.expected =
      "equal " + spec.Describe() + " on " + RankWords(unit.ranks);
  finding.seen = std::to_string(names.size()) + " of " +
                 std::to_string(compared) +
                 " differ: " + ListWords(finding.variables, 3);
  const bool one_stands_out =
      unit.ranks.size() > 2 && odd.size() < unit.ranks.size();
  finding.seen += one_stands_out ? "; " + RankWords({odd.begin(), odd.end()}) +
                                       " differs from the others"
                                 : "; between " + RankWords(unit.ranks);
  return finding;
}

void Evaluator::OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) {
  const auto found = specs_.find(unit.rule);
  if (found == specs_.end()) return;
  const StateSpec& spec = found->second;
  Verdict verdict;
  verdict.rule = unit.rule;
  verdict.attempt = unit.attempt;
  verdict.unit =
      StableHash(RankWords(unit.ranks) + "#" + std::to_string(unit.ordinal));
  verdict.step = window.members->begin()->second.step;
  verdict.varied = window.varied;
  if (!window.differs) {
    verdict.outcome =
        window.unknown.empty() ? Outcome::kPass : Outcome::kUnknown;
    verdict.reason = window.unknown;
    sink_->OnVerdict(verdict);
    return;
  }
  verdict.outcome = Outcome::kViolated;
  verdict.ranks = unit.ranks;
  verdict.across_ranks = true;
  verdict.label = "object " + std::to_string(unit.ordinal) + " window " +
                  std::to_string(window.index);
  verdict.again = window.again;
  verdict.finding = Describe(unit, window, spec);
  sink_->OnVerdict(verdict);
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
