#include "invariants/relations/api_arg/arg_usage.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "base/json_reader.h"
#include "invariants/relations/api_arg/call_usage.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/plain_value.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// A trait with more values in one run is data.
constexpr size_t kMostValues = 3;
constexpr size_t kMostTraits = 32;  // of a rule, in the order of their names
constexpr uint64_t kFewestCalls = 8;
constexpr uint64_t kFewestSteps = 5;  // in which it is called
constexpr size_t kMostNamed = 3;      // in texts

// Those of a trait, at least one.
using Values = std::set<nlohmann::json>;

std::string ValueWords(const Values& values) {
  std::string words;
  for (const nlohmann::json& value : values) {
    words += (words.empty() ? "" : " or ") + PythonText(value);
  }
  return words;
}

// One rule for a function with all its traits, because a set with a rule for
// each argument would have hundreds of them (docs/decisions.md).
struct UsageSpec {
  static constexpr bool kIsHabit = true;
  static constexpr bool is_structure() { return true; }

  FunctionMatch function;
  std::map<std::string, Values> traits;

  nlohmann::json ToJson() const {
    nlohmann::json values = nlohmann::json::object();
    for (const auto& [trait, seen] : traits) values[trait] = seen;
    return {{"is", "usage"},
            {"function", traincheck::ToJson(function)},
            {"values", std::move(values)}};
  }
  std::string Describe() const;
  void AddNeeds(CaptureNeeds* needs) const;
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<UsageSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path);
};

std::string UsageSpec::Describe() const {
  std::vector<std::string> named;
  for (const auto& [trait, values] : traits) {
    named.push_back(trait + " is " + ValueWords(values));
  }
  return "In training, calls of " + function.Describe() +
         " are made as in the reference runs: " + ListWords(named, kMostNamed) +
         ".";
}

void UsageSpec::AddNeeds(CaptureNeeds* needs) const {
  PlannedCall& content = needs->Calls(function.text);
  for (const auto& [trait, values] : traits) {
    // A plan asks for a whole argument: "dims[0].dtype" and "dims.length" both
    // come with "dims".
    const std::string argument = ArgumentOfTrait(trait);
    content.autograd |= trait.ends_with(kGradTrait);
    if (argument == kResultTrait) {
      content.returns = true;
      continue;
    }
    content.arguments.insert(argument);
    // Any of the values may be a text: a plan without it would leave out each
    // text that is given. The text "a tensor" stands for any tensor.
    const bool is_text =
        trait == argument &&
        std::any_of(values.begin(), values.end(), [](const auto& value) {
          return value.is_string() && value != kTensor;
        });
    if (is_text) content.texts.insert(argument);
  }
}

Values ReadValues(const nlohmann::json& json, const std::string& trait,
                  JsonReader* reader) {
  Values values;
  if (json.is_array()) values = json.get<Values>();
  if (values.empty() || !std::all_of(values.begin(), values.end(), IsPlain)) {
    reader->Fail("values", trait +
                               " is not a list of numbers, bools, texts or "
                               "nulls");
  }
  return values;
}

absl::StatusOr<UsageSpec> UsageSpec::Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
  UsageSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "usage") reader.Fail("is", "not \"usage\"");
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level != Level::kName) {
    reader.Fail("function", "not a name");
  }
  const nlohmann::json& values = reader.Object("values");
  if (!values.is_object() || values.empty()) {
    reader.Fail("values", "has no argument");
    return reader.Finish(spec);
  }
  for (const auto& [trait, seen] : values.items()) {
    spec.traits[trait] = ReadValues(seen, trait, &reader);
  }
  return reader.Finish(spec);
}

// The user's own functions, and those of torch.nn that are given settings.
// Other rules look at what the functions of the training step are given.
bool IsSubject(const FunctionInfo& function) {
  const std::string_view name = function.name;
  if (name.empty()) return false;
  if (!FunctionMatch{Level::kName, function.name}.IsGeneral()) return true;
  return name.starts_with("torch.nn.functional.") ||
         (name.starts_with("torch.nn.modules.") && name.ends_with(".forward"));
}

// Evaluations are left out because a program may call its functions otherwise
// there. A backward repeats calls of the forward (checkpointing). Unknown: the
// stage is not known behind a gap.
Tri IsConcerned(const ProcessFacts& facts, const Call& call) {
  if (call.Is(CallFlag::kInsideBackward)) return Tri::kNo;
  const char* stage = facts.stage();
  if (stage == nullptr) return Tri::kUnknown;
  return std::string_view(stage) == "training" ? Tri::kYes : Tri::kNo;
}

class UsagesSeen : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome != CallOutcome::kReturned || call.content.empty()) return;
    if (!call.function || !IsSubject(*call.function)) return;
    if (IsConcerned(facts, call) != Tri::kYes) return;
    Function& function = seen_[call.function_id];
    ++function.calls;
    const std::optional<int64_t> step = facts.clock().known_step();
    // A step that is not known does not count, so a clock that has lost its
    // place never makes up the five steps.
    if (step && step != function.last_step) ++function.steps;
    function.last_step = step;
    for (const auto& [trait, value] : UsageOf(call, facts.definitions())) {
      Trait& seen = function.traits[trait];
      // One more than the most stays as the sign that there are more
      // (IsSettled).
      if (seen.values.size() > kMostValues) continue;
      if (seen.values.insert(value).second) seen.latest = function.calls;
    }
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, function] : seen_) {
      const FunctionInfo* info = definitions.Function(id);
      if (!info || function.calls < kFewestCalls) continue;
      // Many calls in one step are evidence of one step.
      if (function.steps < kFewestSteps) continue;
      UsageSpec spec;
      spec.function = {Level::kName, info->name};
      for (const auto& [trait, seen] : function.traits) {
        // In the order of names, so that runs of one program drop the same
        // traits.
        if (spec.traits.size() == kMostTraits) break;
        // The values of an unsettled trait are left out, and the other traits
        // still make a rule.
        if (seen.IsSettled(function.calls)) spec.traits[trait] = seen.values;
      }
      if (!spec.traits.empty()) {
        out->Add({spec.ToJson(), Scope::kExperiment, {}});
      }
    }
  }

 private:
  struct Trait {
    Values values;
    uint64_t latest = 0;  // call that brought a new one

    bool IsSettled(uint64_t calls) const {
      // A trait that still brings a new value in the second half of the calls
      // may bring another one in the next run.
      return values.size() <= kMostValues && latest <= calls / 2;
    }
  };
  struct Function {
    uint64_t calls = 0;
    uint64_t steps = 0;
    std::optional<int64_t> last_step;
    std::map<std::string, Trait> traits;
  };

  std::unordered_map<uint32_t, Function> seen_;
};

using UsageRule = SpecRule<UsageSpec>;
using Judged = JudgedRules<UsageRule>;

// A call is judged by itself, at its end, when its result is there as well:
// nothing is kept between calls or saved.
class UsagesOfProcess : public ProcessObserver {
 public:
  explicit UsagesOfProcess(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome != CallOutcome::kReturned) return;
    const std::vector<const UsageRule*>& rules = concerned_.Of(call);
    const Tri concerned = rules.empty() ? Tri::kNo : IsConcerned(facts, call);
    if (concerned == Tri::kNo) return;
    // In a stage that is not known the values are not looked at: they may be
    // those of an evaluation.
    const Usage usage =
        concerned == Tri::kYes ? UsageOf(call, facts.definitions()) : Usage();
    for (const UsageRule* rule : rules) {
      if (concerned == Tri::kYes) {
        Judge(facts, call, usage, *rule);
      } else {
        Verdict verdict = NewVerdict(facts, rule->index, /*object=*/0);
        MarkUnknown(facts.gap_reason(), &verdict);
        judged_->sink->OnVerdict(verdict);
      }
    }
  }

 private:
  void Judge(const ProcessFacts& facts, const Call& call, const Usage& usage,
             const UsageRule& rule);

  const Judged* const judged_;
  RulesOfFunctions<UsageRule> concerned_;
};

// Was the argument recorded, as something that is not a tensor? Then
// "input.dtype" is missing because there is none, and not because it was not
// recorded.
bool SaysThatItIsNone(const Usage& usage, const std::string& trait) {
  const auto own = usage.find(OwnerOfTrait(trait));
  return own != usage.end() && own->second != kTensor;
}

void UsagesOfProcess::Judge(const ProcessFacts& facts, const Call& call,
                            const Usage& usage, const UsageRule& rule) {
  std::vector<std::string> expected;
  std::vector<std::string> seen;
  std::string missing;
  for (const auto& [trait, values] : rule.spec.traits) {
    // All differences are collected, because one wrong argument often shows in
    // several traits (dtype and dimensions).
    const auto told = usage.find(trait);
    if (told != usage.end()) {
      if (values.contains(told->second)) continue;
      expected.push_back(trait + " = " + ValueWords(values));
      seen.push_back(trait + " = " + PythonText(told->second));
    } else if (missing.empty() && !SaysThatItIsNone(usage, trait)) {
      missing = trait;
    }
  }
  Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
  // A value that is not listed decides, whatever other traits were not told.
  if (!seen.empty()) {
    MarkViolated(facts, call, &verdict);
    verdict.finding.expected = ListWords(expected, kMostNamed);
    verdict.finding.seen = ListWords(seen, kMostNamed);
  } else if (!missing.empty()) {
    MarkUnknown(
        facts.recorded().whole()
            ? NotRecordedWords(missing, rule.spec.function.Describe(), facts)
            : facts.not_sampled(),
        &verdict);
  }
  judged_->sink->OnVerdict(verdict);
}

}  // namespace

const Relation* ArgUsage() {
  static const auto* const kForm =
      new ProcessRelation<UsageSpec, UsagesOfProcess>(
          "APIArg", NewSeenGenerator<UsagesSeen>);
  return kForm;
}

}  // namespace traincheck
