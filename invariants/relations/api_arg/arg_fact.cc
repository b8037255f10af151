#include "invariants/relations/api_arg/arg_fact.h"

#include <map>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "base/json_reader.h"
#include "invariants/facts/fact_value.h"
#include "invariants/facts/loader_passes.h"
#include "invariants/rules/blame.h"
#include "invariants/rules/fact_needs.h"
#include "invariants/rules/fact_rules.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// A fact that has more values in one run is data, not a setting.
constexpr size_t kMostValues = 3;

struct FactSpec {
  FunctionMatch function;
  WantedFact wanted;

  nlohmann::json ToJson() const {
    return {{"is", "fact"},
            {"function", traincheck::ToJson(function)},
            {"fact", wanted.fact->name},
            {"value", FactToJson(wanted.value)}};
  }
  std::string Describe() const {
    return wanted.Describe(function.DescribeCalled());
  }
  void AddNeeds(CaptureNeeds* needs) const {
    AddCalls(function, needs);
    traincheck::AddNeeds(*wanted.fact, needs);
  }
  // What the call is like, or the loader; never the fact itself.
  const std::vector<const Fact*>& Facts() const;
  static absl::StatusOr<FactSpec> Parse(const nlohmann::json& parameters,
                                        const std::string& path);
};

// Rules on an optimizer take no precondition. Rules on calls go by the stage
// and the mode of gradients, and rules on loaders by what the loader is read
// for.
const std::vector<const Fact*>& FactSpec::Facts() const {
  using List = std::vector<const Fact*>;
  static const auto* const kNone = new List;
  static const auto* const kOfLoaders = new List{FindFact("loader.trains")};
  static const auto* const kOfCalls =
      new List{FindFact("call.stage"), FindFact("ctx.grad_mode"),
               FindFact("call.inside_backward")};
  if (wanted.fact->of == FactOf::kOptimizer) return *kNone;
  return wanted.fact->of == FactOf::kLoader ? *kOfLoaders : *kOfCalls;
}

absl::StatusOr<FactSpec> FactSpec::Parse(const nlohmann::json& parameters,
                                         const std::string& path) {
  FactSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "fact") reader.Fail("is", "not \"fact\"");
  spec.function = ReadFunctionMatch(&reader);
  spec.wanted.fact = ReadFact("fact", &reader);
  spec.wanted.value = ReadFactValue(spec.wanted.fact, &reader);
  // A call has no variable that the fact could be asked of. EventContain asks
  // such facts at steps, of all that an optimizer holds.
  if (spec.wanted.fact && spec.wanted.fact->of == FactOf::kVariable) {
    reader.Fail("fact", "of variables, not of calls");
  }
  return reader.Finish(spec);
}

// A call of any kind may ask for a fact of the loader that its thread is
// reading, but only a step names an optimizer.
FactSubject SubjectOf(const ProcessFacts& facts, const Call& call) {
  FactSubject subject;
  subject.facts = &facts;
  subject.call = &call;
  if (IsOptimizerStep(call)) subject.optimizer = call.object;
  subject.loader = facts.loader_passes().LoaderOn(call.ring);
  return subject;
}

// Which facts of which calls may be rules.
struct FactCandidate {
  const Fact* fact;
  FunctionMatch calls;
  Scope scope;
  // Null: each value that is seen, but for the text "".
  nlohmann::json value;
};

const std::vector<FactCandidate>& Candidates() {
  const auto category = [](const char* name) {
    return FunctionMatch{Level::kCategory, name};
  };
  static const auto* const kCandidates = new std::vector<FactCandidate>{
      {FindFact("call.inside_wrapper"), category("forward"), Scope::kGeneral,
       true},
      // Some models sample when they are evaluated (a VAE its latents).
      {FindFact("call.rng_advanced"), category("forward"), Scope::kExperiment,
       false},
      // A program that evaluates without gradients in training mode may do so
      // on purpose (a teacher, Monte Carlo dropout). In evaluation mode no
      // program asks for dropout.
      {FindFact("call.eval_dropout_p"),
       {Level::kRole, "dropout"},
       Scope::kGeneral,
       0.0},
      {FindFact("call.effective_dropout_p"),
       {Level::kRole, "dropout"},
       Scope::kExperiment,
       0.0},
      {FindFact("call.shapes_match"),
       {Level::kRole, "loss"},
       Scope::kGeneral,
       true},
      {FindFact("opt.trains_as_before"), category("optimizer_step"),
       Scope::kGeneral, true},
      {FindFact("grad.scaled"), category("optimizer_step"), Scope::kGeneral,
       false},
      {FindFact("grad.scaled"), category("clip_grad"), Scope::kGeneral, false},
      {FindFact("ctx.autocast_dtype"), category("forward"), Scope::kExperiment,
       nullptr},
      // Some loaders give one order on purpose, even to train.
      {FindFact("sampler.shuffles"), category("loader_next"),
       Scope::kExperiment, true},
  };
  return *kCandidates;
}

// A plan records functions by name. Where it does not record the whole category
// anyway, a rule is made for each function that was called, so that the plan of
// the rule names the function.
bool IsOfEachFunction(const FunctionMatch& match) {
  return match.level == Level::kCategory && !IsAlwaysRecorded(match.text);
}

class FactsOfCallsSeen : public ProcessObserver {
 public:
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) concerned_.erase(id);
  }
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    See(facts, call, /*at_end=*/false);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome == CallOutcome::kReturned) See(facts, call, /*at_end=*/true);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [key, values] : seen_) {
      const auto& [place, function] = key;
      const FactCandidate& candidate = Candidates()[place];
      if (values.size() > kMostValues) continue;
      for (const std::string& value : values) {
        Add(candidate, definitions.Function(function),
            nlohmann::json::parse(value), out);
      }
    }
  }

 private:
  // Called at both ends of a call: each fact is read at the end at which it is
  // known, as the rule will be judged.
  void See(const ProcessFacts& facts, const Call& call, bool at_end) {
    if (!call.function || !OpensWindow(call)) return;
    for (const size_t place : Of(call)) {
      const FactCandidate& candidate = Candidates()[place];
      const Fact& fact = *candidate.fact;
      const FactSubject subject = SubjectOf(facts, call);
      if (fact.at_end != at_end || !fact.Applies(subject)) continue;
      const FactValue value = fact.read(subject);
      if (!IsKnown(value)) continue;
      // Values of functions that have one rule in common are one set: they are
      // to be equal in all of them.
      const bool each = IsOfEachFunction(candidate.calls);
      std::set<std::string>& values =
          seen_[{place, each ? call.function_id : 0}];
      // One more than the most is kept as the sign that there are more.
      if (values.size() > kMostValues) continue;
      values.insert(FactToJson(value).dump());
    }
  }

  // Places of the candidates that the function concerns.
  const std::vector<size_t>& Of(const Call& call) {
    const auto [found, added] = concerned_.try_emplace(call.function_id);
    if (!added) return found->second;
    for (size_t i = 0; i < Candidates().size(); ++i) {
      if (Candidates()[i].calls.Matches(*call.function)) {
        found->second.push_back(i);
      }
    }
    return found->second;
  }

  static void Add(const FactCandidate& candidate, const FunctionInfo* function,
                  const nlohmann::json& value, HypothesisSet* out) {
    // A candidate with a value of its own is a rule only if the run had exactly
    // this value. The text "" stands for none (no autocast region).
    if (candidate.value.is_null() ? value == "" : value != candidate.value) {
      return;
    }
    FunctionMatch match = candidate.calls;
    if (IsOfEachFunction(match)) {
      // A rule for other programs cannot name a function of one program.
      if (!function || !absl::StartsWith(function->name, "torch.")) return;
      match = {Level::kName, function->name};
    }
    out->Add({{{"is", "fact"},
               {"function", ToJson(match)},
               {"fact", candidate.fact->name},
               {"value", value}},
              candidate.scope,
              {}});
  }

  std::unordered_map<uint32_t, std::vector<size_t>> concerned_;
  // JSON, by place of the candidate and function; 0: any of its functions.
  std::map<std::pair<size_t, uint32_t>, std::set<std::string>> seen_;
};

using FactRule = SpecRule<FactSpec>;
using Judged = JudgedRules<FactRule>;

std::string SeenWords(const ProcessFacts& facts, const Call& call,
                      const Fact& fact, const FactValue& value) {
  return facts.FunctionName(call.function_id) +
         " was called: " + Describe(fact, value) + " (" + StageWords(facts) +
         ")";
}

class FactsOfCalls : public ProcessObserver {
 public:
  explicit FactsOfCalls(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!OpensWindow(call)) return;
    for (const FactRule* rule : concerned_.Of(call)) {
      if (!rule->spec.wanted.fact->at_end) Judge(facts, call, *rule);
    }
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome == CallOutcome::kRaised || !OpensWindow(call)) return;
    for (const FactRule* rule : concerned_.Of(call)) {
      if (rule->spec.wanted.fact->at_end) Judge(facts, call, *rule);
    }
  }
  void Fields(Archive& archive) override { archive(steps_); }

 private:
  void Judge(const ProcessFacts& facts, const Call& call,
             const FactRule& rule) {
    const WantedFact& wanted = rule.spec.wanted;
    const FactSubject subject = SubjectOf(facts, call);
    if (!wanted.fact->Applies(subject)) return;
    const Tri applies = rule.precondition.Holds(subject);
    if (applies == Tri::kNo) return;
    const FactValue value = wanted.fact->read(subject);
    const bool holds = value == wanted.value;
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    // Calls of one step mostly have the fact in common, so only the first of
    // them is a trial.
    const auto [last, first] = steps_.try_emplace(rule.index, verdict.step);
    verdict.varied = first || last->second != verdict.step;
    last->second = verdict.step;
    if (!IsKnown(value)) {
      MarkUnknown(UnknownWords(*wanted.fact, facts), &verdict);
    } else if (applies == Tri::kUnknown) {
      MarkUnknown("a fact of its precondition is not known", &verdict);
    } else if (!holds) {
      MarkViolated(facts, call, &verdict);
      verdict.finding.expected = wanted.Expected();
      verdict.finding.seen = SeenWords(facts, call, *wanted.fact, value);
      AddBlame(*wanted.fact, subject, &verdict.finding);
    }
    if (judged_->sink->wants_examples() &&
        verdict.outcome != Outcome::kUnknown) {
      judged_->sink->OnExample(rule.index,
                               {holds, rule.rule->ReadFacts(subject)});
    }
    judged_->sink->OnVerdict(verdict);
  }

  const Judged* const judged_;
  RulesOfFunctions<FactRule> concerned_;
  std::map<size_t, std::optional<int64_t>>
      steps_;  // of the last window, by rule
};

}  // namespace

const Relation* ArgFact() {
  static const auto* const kForm = new ProcessRelation<FactSpec, FactsOfCalls>(
      "APIArg", NewSeenGenerator<FactsOfCallsSeen>);
  return kForm;
}

}  // namespace traincheck
