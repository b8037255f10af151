#include "invariants/relations/api_arg/arg_constant.h"

#include <map>
#include <set>
#include <unordered_map>
#include <utility>

#include "base/json_reader.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/open_modules.h"
#include "invariants/rules/plain_value.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// An argument with more values in one run is data, not a setting.
constexpr size_t kMostValues = 3;

struct ArgSpec {
  FunctionMatch function;
  std::string argument;
  nlohmann::json value;

  nlohmann::json ToJson() const {
    return {{"is", "constant"},
            {"function", traincheck::ToJson(function)},
            {"argument", argument},
            {"value", value}};
  }
  std::string Describe() const {
    return "In calls of " + function.Describe() + ", " + argument + " is " +
           PythonText(value) + ".";
  }
  void AddNeeds(CaptureNeeds* needs) const {
    PlannedCall& content = needs->Calls(function.text);
    content.arguments.insert(argument);
    // Texts are recorded only where a plan asks for them.
    if (value.is_string()) content.texts.insert(argument);
  }
  static constexpr bool is_structure() { return true; }
  static const std::vector<const Fact*>& Facts();
  static absl::StatusOr<ArgSpec> Parse(const nlohmann::json& parameters,
                                       const std::string& path);
};

absl::StatusOr<ArgSpec> ArgSpec::Parse(const nlohmann::json& parameters,
                                       const std::string& path) {
  ArgSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "constant") reader.Fail("is", "not \"constant\"");
  spec.function = ReadFunctionMatch(&reader);
  // A plan asks for arguments by name or role, and the functions of a category
  // need not have a parameter in common.
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  spec.argument = reader.String("argument");
  spec.value = reader.Any("value");
  if (!IsPlain(spec.value)) {
    reader.Fail("value", "no number, bool, text or null");
  }
  return reader.Finish(spec);
}

// Does the value say what is done, and not how much? Other numbers are
// settings, which programs choose as they like.
bool SaysWhat(const nlohmann::json& value) {
  return !value.is_number() || value == 0 || value == 1;
}

// Rules on dropout go by the share that is dropped, of which there is a fact
// (call.effective_dropout_p), whatever the flags of the call are.
bool IsDropout(const FunctionInfo& function) {
  return !function.roles.empty() && function.roles.back() == "dropout";
}

// The flag "train" of a recurrent layer turns on the dropout between its
// layers, which most models do not have: the flag then changes nothing.
bool IsFlagOfDropout(const FunctionInfo& function,
                     const std::string& argument) {
  static const auto* const kRecurrent = new std::set<std::string>{
      "torch.gru", "torch.lstm", "torch.rnn_relu", "torch.rnn_tanh"};
  return argument == "train" && kRecurrent->count(function.name) > 0;
}

// The values of each argument of each function, while they are few.
class ArgumentValuesSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // Asked before the call itself is counted: an outermost forward is not
    // inside a module.
    const bool inside = modules_.Inside(call);
    modules_.OnCallBegin(call);
    // As the rule is judged: outside of modules the stage is not the call's
    // own.
    if (!inside || call.content.empty() || !call.function) return;
    std::map<std::string, Values>& seen = seen_[call.function_id];
    for (const CallArgument& argument :
         ArgumentsOf(call, facts.definitions()).all) {
      Values& values = seen[argument.name];
      if (values.many) continue;
      const auto plain = PlainValue(argument.value);
      if (plain) values.few.insert(plain->dump());
      // One value that no rule can name makes the argument data, too.
      values.many = !plain || values.few.size() > kMostValues;
    }
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    modules_.OnCallEnd(call);
  }

  // Each value of an argument that had several.
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, arguments] : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty() || IsDropout(*function)) {
        continue;
      }
      for (const auto& [argument, values] : arguments) {
        // Each value is a hypothesis. The learner finds the precondition under
        // which it holds, or drops it.
        if (values.many || values.few.size() < 2) continue;
        if (IsFlagOfDropout(*function, argument)) continue;
        for (const std::string& value : values.few) {
          Add({{Level::kName, function->name},
               argument,
               nlohmann::json::parse(value)},
              out);
        }
      }
    }
  }

 private:
  struct Values {
    std::set<std::string> few;  // JSON
    bool many = false;
  };

  static void Add(const ArgSpec& spec, HypothesisSet* out) {
    // A rule is learned for each value that says what is done; one value of an
    // argument may be such and another one not (0 and 0.1).
    if (!SaysWhat(spec.value)) return;
    // A text names one of several ways to do something, which another program
    // may do in another way. A mode matters by what follows from it, and rules
    // on dropout go by that.
    const bool general = spec.function.IsGeneral() && !spec.value.is_string() &&
                         spec.argument != "training";
    const Scope scope = general ? Scope::kGeneral : Scope::kExperiment;
    out->Add({spec.ToJson(), scope, {}});
  }

  OpenModules modules_;
  std::unordered_map<uint32_t, std::map<std::string, Values>> seen_;
};

using ArgRule = SpecRule<ArgSpec>;

const std::vector<const Fact*>& ArgSpec::Facts() {
  // Not the module's own mode: a model that is still in training mode when it
  // is evaluated is what such a rule is to report.
  static const auto* const kFacts = new std::vector<const Fact*>{
      FindFact("call.stage"), FindFact("ctx.grad_mode"),
      FindFact("call.inside_backward")};
  return *kFacts;
}

using Judged = JudgedRules<ArgRule>;

class ArgsOfProcess : public ProcessObserver {
 public:
  explicit ArgsOfProcess(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // Before the call itself is counted, as where the hypotheses are made.
    const bool inside = modules_.Inside(call);
    modules_.OnCallBegin(call);
    if (!inside) return;
    const std::vector<const ArgRule*>& rules = concerned_.Of(call);
    if (rules.empty()) return;
    const ToldArguments arguments = ArgumentsOf(call, facts.definitions());
    for (const ArgRule* rule : rules) Judge(facts, call, arguments, *rule);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    modules_.OnCallEnd(call);
  }
  void Fields(Archive& archive) override { archive(modules_, seen_); }

 private:
  struct Seen {
    bool passed = false;
    bool other_since = false;  // another value, since it last passed

    void Fields(Archive& archive) { archive(passed, other_since); }
  };

  void Judge(const ProcessFacts& facts, const Call& call,
             const ToldArguments& arguments, const ArgRule& rule);
  static void Explain(const ProcessFacts& facts, const Call& call,
                      const ArgSpec& spec, const std::string& value,
                      Verdict* verdict);

  const Judged* const judged_;
  OpenModules modules_;
  RulesOfFunctions<ArgRule> concerned_;
  std::map<size_t, Seen> seen_;  // by rule
};

void ArgsOfProcess::Explain(const ProcessFacts& facts, const Call& call,
                            const ArgSpec& spec, const std::string& value,
                            Verdict* verdict) {
  MarkViolated(facts, call, verdict);
  Finding& finding = verdict->finding;
  finding.expected = spec.argument + " = " + PythonText(spec.value);
  finding.seen = spec.argument + " = " + value + " in " + StageWords(facts);
}

void ArgsOfProcess::Judge(const ProcessFacts& facts, const Call& call,
                          const ToldArguments& arguments, const ArgRule& rule) {
  const CallValue* told = arguments.Find(rule.spec.argument);
  std::optional<nlohmann::json> value;
  if (told) value = PlainValue(*told);
  // A value that was recorded and that no rule can name (a tensor, an object)
  // is another value as well.
  const bool holds = value && *value == rule.spec.value;
  Seen& seen = seen_[rule.index];
  if (told && !holds) seen.other_since = true;
  FactSubject subject;
  subject.facts = &facts;
  subject.call = &call;
  // Only behind other_since: a value that lies outside the condition is what
  // makes the next one within it a trial.
  const Tri applies = rule.precondition.Holds(subject);
  if (applies == Tri::kNo) return;
  Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
  if (holds) {
    // The value comes and goes with the condition: that it began with it would
    // say little (the first of several epochs).
    verdict.varied = seen.passed && seen.other_since;
    seen = {true, false};
  }
  if (!told) {
    MarkUnknown(facts.recorded().whole()
                    ? NotRecordedWords(rule.spec.argument,
                                       rule.spec.function.Describe(), facts)
                    : facts.not_sampled(),
                &verdict);
    // An argument that was not recorded is the better reason, so it comes
    // first.
  } else if (applies == Tri::kUnknown) {
    MarkUnknown("a fact of its precondition is not known", &verdict);
  } else if (!holds) {
    Explain(facts, call, rule.spec,
            value ? PythonText(*value) : "another kind of value", &verdict);
  }
  // An example says whether the rule held, which an unknown window does not
  // know.
  if (judged_->sink->wants_examples() && verdict.outcome != Outcome::kUnknown) {
    judged_->sink->OnExample(rule.index,
                             {holds, rule.rule->ReadFacts(subject)});
  }
  judged_->sink->OnVerdict(verdict);
}

}  // namespace

const Relation* ArgConstant() {
  static const auto* const kForm = new ProcessRelation<ArgSpec, ArgsOfProcess>(
      "APIArg", NewSeenGenerator<ArgumentValuesSeen>);
  return kForm;
}

}  // namespace traincheck
