#include "invariants/relations/calls_across_ranks.h"

#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "invariants/facts/call_values.h"
#include "invariants/hash.h"
#include "invariants/relations/plain_value.h"
#include "invariants/relations/rank_comparison.h"
#include "invariants/relations/rules_of_functions.h"
#include "invariants/relations/step_windows.h"

namespace traincheck {

namespace {

// Calls of one function in one step: more are aligned with the wrong ones.
constexpr uint64_t kMostCalls = 1 << 20;

std::optional<RankValue> ValueOf(const CallValue& value) {
  RankValue result;
  if (const auto* tensor = value.Get<TensorValue>()) {
    if (!tensor->digest) return std::nullopt;
    result.digest = *tensor->digest;
    return result;
  }
  const auto plain = PlainValue(value);
  if (!plain) return std::nullopt;
  result.shown = PythonText(*plain);
  result.digest = StableHash(result.shown);
  return result;
}

class Evaluator : public RankEvaluator {
 public:
  Evaluator(std::vector<RankCallRule> rules, RuleSink* sink)
      : RankEvaluator(sink), rules_(std::move(rules)) {
    for (const RankCallRule& rule : rules_) {
      comparison().SetWords(rule.index, {.what = rule.spec.What()});
    }
  }

  ProcessObserver* AddProcess(const ProcessFacts& facts) override {
    processes_.push_back(std::make_unique<Process>(this));
    return processes_.back().get();
  }

 private:
  class Process : public ProcessObserver {
   public:
    explicit Process(Evaluator* run) : run_(run), concerned_(&run->rules_) {}

    void OnDefinition(const ProcessFacts& facts, RecordType type,
                      uint32_t id) override {
      concerned_.OnDefinition(type, id);
    }
    void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
      steps_.Advance(facts);
    }
    void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
      steps_.Advance(facts);
      for (const RankCallRule* rule : concerned_.Of(call)) {
        if (rule->spec.argument.empty()) continue;
        const ToldArguments told = ArgumentsOf(call, facts.definitions());
        const CallValue* value = told.Find(rule->spec.argument);
        Add(facts, call, *rule, value);
      }
    }
    void OnCallEnd(const ProcessFacts& facts, const Call& call,
                   CallOutcome outcome) override {
      for (const RankCallRule* rule : concerned_.Of(call)) {
        if (!rule->spec.argument.empty()) continue;
        const auto value = ResultOf(call, facts.definitions());
        Add(facts, call, *rule, value ? &*value : nullptr);
      }
    }
    void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
      run_->comparison().EndProcess(facts, end);
    }
    void Fields(Archive& archive) override { archive(steps_, counts_); }

   private:
    // Calls of a rule's functions in the step that is open.
    struct Count {
      uint64_t step = 0;
      uint64_t calls = 0;
      uint64_t gaps = 0;
      void Fields(Archive& archive) { archive(step, calls, gaps); }
    };

    void Add(const ProcessFacts& facts, const Call& call,
             const RankCallRule& rule, const CallValue* value);

    Evaluator* const run_;
    RulesOfFunctions<RankCallRule> concerned_;
    StepWindows steps_;
    std::map<size_t, Count> counts_;  // by rule
  };

  const std::vector<RankCallRule> rules_;
  std::vector<std::unique_ptr<Process>> processes_;
};

void Evaluator::Process::Add(const ProcessFacts& facts, const Call& call,
                             const RankCallRule& rule, const CallValue* value) {
  RankWindow window;
  window.ranks = ReplicaRanks(facts);
  if (!facts.rank() || window.ranks.empty() || !facts.clock().synced()) return;
  Count& count = counts_[rule.index];
  const uint64_t step = facts.clock().step();
  if (count.step != step) count = {step, 0, facts.gaps()};
  if (count.calls >= kMostCalls) return;
  window.index = step * kMostCalls + count.calls++;
  window.step = static_cast<int64_t>(step);
  auto told = value ? ValueOf(*value) : std::nullopt;
  // Calls before the clock found its count again may be of this step.
  const bool from_begin = step == 0 || steps_.open().whole;
  if (count.gaps != facts.gaps() || (!from_begin && facts.gaps() > 0)) {
    window.unknown = facts.gap_reason();
  } else if (!told) {
    window.unknown = facts.recorded().whole()
                         ? rule.spec.What() + " was not told on " + facts.Name()
                         : facts.not_sampled();
  } else {
    told->name = rule.spec.What();
    told->function = facts.FunctionName(call.function_id);
    told->site = facts.definitions().Site(call.site);
    window.values.push_back(*std::move(told));
  }
  run_->comparison().Add(facts, rule.index, std::move(window));
}

}  // namespace

std::string RankCallSpec::What() const {
  return (argument.empty() ? "the result" : argument) + " of " +
         function.Describe();
}

std::vector<int32_t> ReplicaRanks(const ProcessFacts& facts) {
  std::vector<int32_t> ranks;
  for (const auto& [id, group] : facts.definitions().groups()) {
    if (group.evidence.empty() || group.ranks.size() < 2) continue;
    if (!ranks.empty() && ranks != group.ranks) return {};
    ranks = group.ranks;
  }
  return ranks;
}

std::unique_ptr<RunObserver> NewCallsAcrossRanksEvaluator(
    std::vector<RankCallRule> rules, RuleSink* sink) {
  return std::make_unique<Evaluator>(std::move(rules), sink);
}

}  // namespace traincheck
