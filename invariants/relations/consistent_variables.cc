#include "invariants/relations/consistent_variables.h"

#include <map>
#include <set>
#include <tuple>

#include "invariants/json_reader.h"
#include "invariants/relations/state_block.h"
#include "invariants/relations/verdicts.h"
#include "invariants/relations/words.h"

namespace traincheck {

namespace {

constexpr char kParameters[] = "parameter.data";
// Parameters and what their optimizer keeps of them.
constexpr char kAny[] = "data";

struct Pair {
  std::string of;
  std::string a;
  std::string b;

  bool operator<(const Pair& other) const {
    return std::tie(of, a, b) < std::tie(other.of, other.a, other.b);
  }
};

Pair ParsePair(const nlohmann::json& parameters, const std::string& path,
               absl::Status* status) {
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
  Pair pair{of, reader.String("a"), reader.String("b")};
  if (!(pair.a < pair.b)) reader.Fail("b", "does not sort after \"a\"");
  *status = reader.Finish();
  return pair;
}

nlohmann::json WritePair(const Pair& pair) {
  return {{"across", "variables"},
          {"of", pair.of},
          {"point", "post_step"},
          {"a", pair.a},
          {"b", pair.b}};
}

// Of what the optimizer keeps, single numbers count steps, which is equal for
// all and means nothing.
bool IsComparable(const ProcessFacts& facts, const BlockEntry& entry) {
  const VariableInfo* info = facts.definitions().Variable(entry.variable);
  if (!info || !entry.data) return false;
  return info->kind == VariableKind::kParameter ||
         (info->kind == VariableKind::kOptimizerState && !info->shape.empty());
}

// Parts the variables of an optimizer by their digests, block after block:
// what is in one class at the end was equal in every block.
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
        member.varied |= member.digest != *entry.data;
      } else if (started_) {
        continue;  // came later: not equal in every block
      }
      member.digest = *entry.data;
      const auto [part, added] =
          split.emplace(std::pair(member.part, member.digest), split.size());
      member.part = part->second;
      next[entry.variable] = member;
    }
    started_ = true;
    members_ = std::move(next);
  }

  // Neighbours by name in each class whose values varied.
  void Pairs(const Definitions& definitions, std::set<Pair>* pairs) const {
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

class HypothesisMaker : public Generator {
 public:
  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(&facts));
    return processes_.back().get();
  }
  void EndRun() override {
    for (const auto& process : processes_) process->Pairs(&pairs_);
  }

  std::vector<Hypothesis> Take() override {
    std::vector<Hypothesis> result;
    for (const Pair& pair : pairs_) {
      result.push_back({WritePair(pair), Scope::kExperiment, {}});
    }
    return result;
  }

 private:
  class Process : public StateBlocks {
   public:
    explicit Process(const ProcessFacts* facts) : facts_(facts) {}
    void Pairs(std::set<Pair>* pairs) const {
      for (const auto& [optimizer, partition] : partitions_) {
        partition.Pairs(facts_->definitions(), pairs);
      }
    }

   private:
    void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
      if (block.point != StatePoint::kPostStep || !block.broken.empty()) return;
      partitions_[block.object].Add(facts, block);
    }

    const ProcessFacts* const facts_;
    std::map<uint32_t, Partition> partitions_;  // by optimizer
  };

  std::vector<std::unique_ptr<Process>> processes_;
  std::set<Pair> pairs_;
};

class Evaluator : public RunObserver {
 public:
  Evaluator(const std::vector<Rule>& rules, RuleSink* sink) : sink_(sink) {
    for (size_t i = 0; i < rules.size(); ++i) {
      absl::Status status;
      const Pair pair = ParsePair(rules[i].invariant->parameters, "", &status);
      if (!status.ok()) continue;
      pairs_[i] = pair;
      names_.insert(pair.a);
      names_.insert(pair.b);
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }
  void EndRun() override {}

 private:
  class Process : public StateBlocks {
   public:
    explicit Process(Evaluator* run) : run_(run) {}
    void Fields(Archive& archive) override {
      StateBlocks::Fields(archive);
      archive(last_);
    }

   private:
    void OnBlock(const ProcessFacts& facts, const StateBlock& block) override {
      if (block.point == StatePoint::kPostStep && !run_->pairs_.empty()) {
        Judge(facts, block);
      }
    }

    void Judge(const ProcessFacts& facts, const StateBlock& block) {
      std::map<std::string, const BlockEntry*> entries;
      for (const BlockEntry& entry : block.entries) {
        const VariableInfo* info = facts.definitions().Variable(entry.variable);
        if (info && run_->names_.count(info->FullName())) {
          entries[info->FullName()] = &entry;
        }
      }
      for (const auto& [rule, pair] : run_->pairs_) {
        const auto a = entries.find(pair.a);
        const auto b = entries.find(pair.b);
        if (a == entries.end() || b == entries.end()) continue;
        JudgePair(facts, block, rule, *a->second, *b->second);
      }
    }

    void JudgePair(const ProcessFacts& facts, const StateBlock& block,
                   size_t rule, const BlockEntry& a, const BlockEntry& b) {
      Verdict verdict = NewVerdict(facts, rule, block.ordinal);
      verdict.step = block.step;
      if (!a.data || !b.data) {
        verdict.outcome = Outcome::kUnknown;
        verdict.reason =
            block.broken.empty() ? "a tensor was not recorded" : block.broken;
      } else if (*a.data != *b.data) {
        verdict.outcome = Outcome::kViolated;
        Explain(facts, run_->pairs_.at(rule), a, b, &verdict);
      } else {
        uint64_t& last = last_[{rule, block.ordinal}];
        verdict.varied = last != 0 && last != *a.data;
        last = *a.data;
      }
      run_->sink_->OnVerdict(verdict);
    }

    static void Explain(const ProcessFacts& facts, const Pair& pair,
                        const BlockEntry& a, const BlockEntry& b,
                        Verdict* verdict) {
      if (facts.rank()) verdict->ranks = {*facts.rank()};
      verdict->label = StepLabel(facts, *verdict);
      Finding& finding = verdict->finding;
      finding.variables = {pair.a, pair.b};
      for (const BlockEntry* entry : {&a, &b}) {
        AddOnce(facts.FunctionName(entry->data_writer.function), &finding.apis);
        AddOnce(facts.definitions().Site(entry->data_writer.site),
                &finding.sites);
      }
      finding.expected = "equal values";
      finding.seen = "they differ when the optimizer step ends";
    }

    Evaluator* const run_;
    std::map<std::pair<size_t, uint32_t>, uint64_t> last_;
  };

  RuleSink* const sink_;
  std::map<size_t, Pair> pairs_;  // by rule
  std::set<std::string> names_;
  std::vector<std::unique_ptr<Process>> processes_;
};

}  // namespace

absl::Status CheckConsistentVariables(const nlohmann::json& parameters,
                                      const std::string& path) {
  absl::Status status;
  ParsePair(parameters, path, &status);
  return status;
}

std::string DescribeConsistentVariables(const nlohmann::json& parameters) {
  absl::Status status;
  const Pair pair = ParsePair(parameters, "", &status);
  return pair.a + " and " + pair.b +
         " hold equal values whenever an optimizer step ends.";
}

std::unique_ptr<Generator> NewConsistentVariablesGenerator() {
  return std::make_unique<HypothesisMaker>();
}

std::unique_ptr<RunObserver> NewConsistentVariablesEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink) {
  return std::make_unique<Evaluator>(rules, sink);
}

}  // namespace traincheck
