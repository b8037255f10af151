#include "invariants/rules/calls_across_ranks.h"

#include <cstring>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>

#include "base/hash.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/plain_value.h"
#include "invariants/rules/rank_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/step_windows.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// The index of a window is step * kMostCalls + the call's place in the step.
// Calls beyond so many in one step are not compared: their indices would be
// those of the next step.
constexpr uint64_t kMostCalls = 1 << 20;

std::optional<RankValue> ValueOf(const CallValue& value) {
  RankValue result;
  if (const auto* tensor = value.Get<TensorValue>()) {
    if (!tensor->digest) return std::nullopt;
    result.digest = *tensor->digest;
    return result;
  }
  // Two tensors cannot be compared without a digest, and two objects may be
  // equal in all but their number.
  const auto plain = PlainValue(value);
  if (!plain) return std::nullopt;
  result.shown = PythonText(*plain);
  result.digest = StableHash(result.shown);
  return result;
}

struct RankCallSpec {
  FunctionMatch function;
  std::string argument;  // "": the result

  static absl::StatusOr<RankCallSpec> Parse(const nlohmann::json& parameters,
                                            const std::string& path);

  // "max_norm of f", "the result of f".
  std::string What() const {
    return (argument.empty() ? "the result" : argument) + " of " +
           function.Describe();
  }
  RankComparison::Words Words() const { return {.what = What()}; }
  std::string Describe() const {
    return "On all ranks that train replicas of a model, " + What() +
           " is the same.";
  }
  static std::vector<const Fact*> Facts() { return {}; }
  void AddNeeds(CaptureNeeds* needs) const {
    PlannedCall& content = needs->Calls(function.text);
    if (!argument.empty()) {
      content.arguments.insert(argument);
    } else {
      content.returns = true;
      content.digests.insert("return");
    }
  }
};

// A rule on an argument is a form of APIArg and has "is"; one on the result is
// a form of Consistent and has "of".
absl::StatusOr<RankCallSpec> RankCallSpec::Parse(
    const nlohmann::json& parameters, const std::string& path) {
  RankCallSpec spec;
  JsonReader reader(parameters, path);
  const bool of_argument = reader.Has("is");
  if (of_argument && reader.String("is") != "equal") {
    reader.Fail("is", "not \"equal\"");
  }
  if (reader.String("across") != "ranks") {
    reader.Fail("across", "not \"ranks\"");
  }
  if (!of_argument && reader.String("of") != "return") {
    reader.Fail("of", "not \"return\"");
  }
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  if (of_argument) {
    spec.argument = reader.String("argument");
    if (spec.argument.empty()) reader.Fail("argument", "empty");
  }
  return reader.Finish(spec);
}

using RankCallRule = SpecRule<RankCallSpec>;

class CallsOfProcess : public ProcessObserver {
 public:
  explicit CallsOfProcess(RankRules<RankCallSpec>* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    // Steps close at marks (a fetched batch, the user's own) as well as at
    // calls.
    steps_.Advance(facts);
  }
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    steps_.Advance(facts);
    for (const RankCallRule* rule : concerned_.Of(call)) {
      // Results are known at the end of the call alone.
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

  RankRules<RankCallSpec>* const judged_;
  RulesOfFunctions<RankCallRule> concerned_;
  StepWindows steps_;
  std::map<size_t, Count> counts_;  // by rule
};

void CallsOfProcess::Add(const ProcessFacts& facts, const Call& call,
                         const RankCallRule& rule, const CallValue* value) {
  RankWindow window;
  window.ranks = ReplicaRanks(facts);
  // In a step that is not known there is nothing to align the call with.
  if (!facts.rank() || window.ranks.empty() || !facts.clock().synced()) return;
  Count& count = counts_[rule.index];
  const uint64_t step = facts.clock().step();
  // The first call of the step: whatever is missing from here on may be calls
  // of it.
  if (count.step != step) count = {step, 0, facts.gaps()};
  if (count.calls >= kMostCalls) return;
  // The same on every rank that calls the function as often.
  window.index = step * kMostCalls + count.calls++;
  window.step = static_cast<int64_t>(step);
  auto told = value ? ValueOf(*value) : std::nullopt;
  // Calls before the clock found its count again may be of this step. A call
  // that is missing would put all behind it one place off.
  const bool from_begin = step == 0 || steps_.open().whole;
  if (count.gaps != facts.gaps() || (!from_begin && facts.gaps() > 0)) {
    window.unknown = facts.gap_reason();
  } else if (!told) {
    window.unknown =
        facts.recorded().whole()
            ? rule.spec.What() + " was not recorded on " + facts.Name()
            : facts.not_sampled();
  } else {
    told->name = rule.spec.What();
    told->writer = {call.function_id, call.site};
    window.values.push_back(*std::move(told));
  }
  // Also a window without a value: the other ranks wait for it, and its reason
  // becomes that of the verdict.
  judged_->comparison.Add(facts, rule.index, window);
}

}  // namespace

std::vector<int32_t> ReplicaRanks(const ProcessFacts& facts) {
  std::vector<int32_t> ranks;
  for (const auto& [id, group] : facts.definitions().groups()) {
    if (group.evidence.empty() || group.ranks.size() < 2) continue;
    // Two models that are replicated on different ranks leave open to which of
    // them a call belongs.
    if (!ranks.empty() && ranks != group.ranks) return {};
    ranks = group.ranks;
  }
  return ranks;
}

const Relation* NewCallsAcrossRanks(const char* name,
                                    MakeGenerator make_generator) {
  return new RankRelation<RankCallSpec, CallsOfProcess>(name, make_generator);
}

}  // namespace traincheck
