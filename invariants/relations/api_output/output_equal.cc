#include "invariants/relations/api_output/output_equal.h"

#include <map>
#include <unordered_map>
#include <utility>

#include "base/json_reader.h"
#include "invariants/facts/autocast.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

struct OutputSpec {
  FunctionMatch function;
  // "": the type of the result is that of the autocast region; else the rows
  // of the result are those of this argument.
  std::string argument;

  bool is_autocast() const { return argument.empty(); }

  nlohmann::json ToJson() const {
    const nlohmann::json to =
        is_autocast() ? nlohmann::json{{"context", "autocast_dtype"}}
                      : nlohmann::json{{"argument", argument}};
    return {{"is", "equal"},
            {"function", traincheck::ToJson(function)},
            {"output", is_autocast() ? "dtype" : "size(0)"},
            {"to", to}};
  }
  std::string Describe() const {
    if (is_autocast()) {
      return "Under torch.autocast, " + function.Describe() +
             " returns a tensor of the autocast dtype.";
    }
    return function.Describe() + " returns as many rows as " + argument +
           " has.";
  }
  void AddNeeds(CaptureNeeds* needs) const {
    PlannedCall& content = needs->Calls(function.text);
    content.returns = true;
    if (!is_autocast()) content.arguments.insert(argument);
  }
  // How many rows a function gives back is how the program is written. The type
  // under autocast is not: it is up to torch.
  bool is_structure() const { return !is_autocast(); }
  // The region, or that rows were given, says when it applies.
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<OutputSpec> Parse(const nlohmann::json& parameters,
                                          const std::string& path);
};

absl::StatusOr<OutputSpec> OutputSpec::Parse(const nlohmann::json& parameters,
                                             const std::string& path) {
  OutputSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "equal") reader.Fail("is", "not \"equal\"");
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  const std::string output = reader.String("output");
  const nlohmann::json& json = reader.Object("to");
  if (json.is_object()) {
    JsonReader to(json, reader.PathOf("to"));
    if (output == "dtype") {
      if (to.String("context") != "autocast_dtype") {
        to.Fail("context", "not \"autocast_dtype\"");
      }
    } else if (output == "size(0)") {
      spec.argument = to.String("argument");
      // An empty name would make it the other form (`argument` above).
      if (spec.argument.empty()) to.Fail("argument", "empty");
    } else {
      reader.Fail("output", "neither \"dtype\" nor \"size(0)\"");
    }
    reader.Adopt(to.Finish());
  }
  return reader.Finish(spec);
}

std::optional<uint64_t> RowsOf(const TensorValue& tensor) {
  if (tensor.sizes.empty()) return std::nullopt;
  return tensor.sizes[0];
}

// Of a tensor its rows, of a list its elements.
std::optional<uint64_t> RowsGiven(const CallValue* value) {
  if (!value) return std::nullopt;
  const auto* tensor = value->Get<TensorValue>();
  if (tensor) return RowsOf(*tensor);
  // A text that was not recorded has a length, too, but no elements.
  const bool list = value->length.has_value() && !value->elements.empty();
  return list ? value->length : std::nullopt;
}

// A number in a tensor.
bool IsScalar(const TensorValue& tensor) { return tensor.dimensions == 0u; }

// Was it recorded, as something that has no rows? What has a length and no
// elements may be a list of which none was recorded.
bool HasNoRows(const CallValue* value) {
  if (!value || value->Get<std::monostate>()) return false;
  const auto* tensor = value->Get<TensorValue>();
  return tensor ? IsScalar(*tensor) : !value->length;
}

// Does an argument have another type than the result? Then the call has cast. A
// function that ignores autocast returns the type of its inputs, which may be
// that of the region by accident.
bool HasCast(const ToldArguments& arguments, const TensorValue& result) {
  for (const CallArgument& argument : arguments.all) {
    const auto* tensor = argument.value.Get<TensorValue>();
    if (tensor && tensor->dtype != result.dtype) return true;
  }
  return false;
}

// The type to which the region around a call that returned the tensor casts;
// nullopt: not known; "": there is none. The region is that of the result's
// device: regions of several devices may be open at a time.
std::optional<std::string> RegionDtype(const ProcessFacts& facts,
                                       const Call& call,
                                       const TensorValue& result) {
  return facts.autocast().DtypeOn(call.ring, result.device);
}

// What held in every call of a process so far, by function.
class OutputsSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    std::vector<Open>& open = open_[call.ring];
    if (HasCategory(call, CallCategory::kForward)) {
      // At any depth: what such a call returns is up to a module inside it
      // (Collect).
      for (Open& around : open) around.has_module = true;
    }
    open.push_back({call.number, false});
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::vector<Open>& open = open_[call.ring];
    if (open.empty() || open.back().call != call.number) return;
    const bool has_module = open.back().has_module;
    open.pop_back();
    if (outcome != CallOutcome::kReturned || call.result.empty() ||
        !call.function) {
      return;
    }
    const auto value = ResultOf(call, facts.definitions());
    const auto* result = value ? value->Get<TensorValue>() : nullptr;
    if (!result) return;
    Seen& seen = seen_[call.function_id];
    // One call is enough: a module may call its parts in some of its calls
    // only.
    seen.has_modules |= has_module;
    if (const auto dtype = RegionDtype(facts, call, *result);
        dtype && !dtype->empty()) {
      seen.Judge(&seen.autocast, *dtype == result->dtype);
    }
    SeeRows(facts, call, *result, &seen);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, seen] : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      const FunctionMatch match{Level::kName, function->name};
      // What a module of modules returns is up to the last of these.
      if (seen.autocast == Held::kAlways && !seen.has_modules) {
        Add({match, ""}, out);
      }
      // Which rows go through a function of torch is up to its caller.
      if (match.IsGeneral()) continue;
      for (const auto& [argument, held] : seen.rows) {
        if (held == Held::kAlways) Add({match, argument}, out);
      }
    }
  }

 private:
  enum class Held { kNotSeen, kAlways, kNotAlways };
  struct Open {
    uint64_t call = 0;
    bool has_module = false;
  };
  struct Seen {
    bool has_modules = false;
    Held autocast = Held::kNotSeen;
    std::map<std::string, Held> rows;  // by argument

    // What failed once stays kNotAlways: a rule must hold in every call.
    static void Judge(Held* held, bool holds) {
      if (!holds) *held = Held::kNotAlways;
      if (*held == Held::kNotSeen) *held = Held::kAlways;
    }
  };

  static void Add(const OutputSpec& spec, HypothesisSet* out) {
    const bool general = spec.is_autocast() && spec.function.IsGeneral();
    const Scope scope = general ? Scope::kGeneral : Scope::kExperiment;
    out->Add({spec.ToJson(), scope, {}});
  }

  static void SeeRows(const ProcessFacts& facts, const Call& call,
                      const TensorValue& result, Seen* seen) {
    // No rule would come of it (Collect), so the arguments are not decoded.
    if (FunctionMatch{Level::kName, call.function->name}.IsGeneral()) return;
    const auto rows = RowsOf(result);
    if (!rows) return;
    for (const CallArgument& argument :
         ArgumentsOf(call, facts.definitions()).all) {
      const auto given = RowsGiven(&argument.value);
      if (given) Seen::Judge(&seen->rows[argument.name], *given == *rows);
    }
  }

  std::map<uint32_t, std::vector<Open>> open_;  // by ring
  std::unordered_map<uint32_t, Seen> seen_;     // by function
};

using OutputRule = SpecRule<OutputSpec>;
using Judged = JudgedRules<OutputRule>;

class OutputsOfProcess : public ProcessObserver {
 public:
  explicit OutputsOfProcess(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override;
  void Fields(Archive& archive) override { archive(last_rows_); }

 private:
  void Judge(const ProcessFacts& facts, const Call& call,
             const std::optional<CallValue>& result, const OutputRule& rule);
  void JudgeDtype(const ProcessFacts& facts, const Call& call,
                  const TensorValue& result,
                  const std::optional<std::string>& wanted, Verdict* verdict);
  // False: argument or result has no rows, so the call is not a window.
  bool JudgeRows(const ProcessFacts& facts, const Call& call,
                 const TensorValue& result, const OutputRule& rule,
                 Verdict* verdict);

  const Judged* const judged_;
  RulesOfFunctions<OutputRule> concerned_;
  std::map<size_t, uint64_t> last_rows_;  // by rule
};

void Violate(const ProcessFacts& facts, const Call& call,
             const std::string& expected, const std::string& seen,
             Verdict* verdict) {
  MarkViolated(facts, call, verdict);
  verdict->finding.expected = expected;
  verdict->finding.seen = seen;
}

void OutputsOfProcess::OnCallEnd(const ProcessFacts& facts, const Call& call,
                                 CallOutcome outcome) {
  if (outcome == CallOutcome::kRaised) return;
  const std::vector<const OutputRule*>& rules = concerned_.Of(call);
  if (rules.empty()) return;
  // Decoded once for all rules on the function.
  const auto result = ResultOf(call, facts.definitions());
  for (const OutputRule* rule : rules) Judge(facts, call, result, *rule);
}

void OutputsOfProcess::Judge(const ProcessFacts& facts, const Call& call,
                             const std::optional<CallValue>& result,
                             const OutputRule& rule) {
  const auto* tensor = result ? result->Get<TensorValue>() : nullptr;
  // A result of another kind is no window; only one that was not recorded is
  // unknown.
  if (result && !tensor) return;
  std::optional<std::string> region;
  if (tensor && rule.spec.is_autocast()) {
    region = RegionDtype(facts, call, *tensor);
    // Outside of all regions, or in a disabled one, the rule does not apply to
    // the call.
    if (region == "") return;
  }
  Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
  if (!tensor) {
    MarkUnknown(facts.recorded().whole()
                    ? NotRecordedWords("the result",
                                       rule.spec.function.Describe(), facts)
                    : facts.not_sampled(),
                &verdict);
  } else if (rule.spec.is_autocast()) {
    JudgeDtype(facts, call, *tensor, region, &verdict);
  } else if (!JudgeRows(facts, call, *tensor, rule, &verdict)) {
    return;
  }
  judged_->sink->OnVerdict(verdict);
}

void OutputsOfProcess::JudgeDtype(const ProcessFacts& facts, const Call& call,
                                  const TensorValue& result,
                                  const std::optional<std::string>& wanted,
                                  Verdict* verdict) {
  if (!wanted) {
    return MarkUnknown("the autocast region is not known on " + facts.Name(),
                       verdict);
  }
  // A result that has the type of the inputs says nothing to the learner. The
  // checker does not read `varied`, so the arguments are decoded for the
  // learner alone.
  verdict->varied = judged_->sink->wants_examples() &&
                    HasCast(ArgumentsOf(call, facts.definitions()), result);
  if (result.dtype == *wanted) return;
  Violate(facts, call, *wanted, "a result of " + result.dtype, verdict);
}

bool OutputsOfProcess::JudgeRows(const ProcessFacts& facts, const Call& call,
                                 const TensorValue& result,
                                 const OutputRule& rule, Verdict* verdict) {
  const ToldArguments arguments = ArgumentsOf(call, facts.definitions());
  const std::string& name = rule.spec.argument;
  const CallValue* argument = arguments.Find(name);
  if (HasNoRows(argument) || IsScalar(result)) return false;
  const auto given = RowsGiven(argument);
  const auto rows = RowsOf(result);
  if (!given || !rows) {
    MarkUnknown(name + " or the result of " + rule.spec.function.Describe() +
                    " has no rows, or was not recorded, on " + facts.Name(),
                verdict);
    return true;
  }
  const auto last = last_rows_.find(rule.index);
  // With one number of rows throughout, the result may have it by accident.
  verdict->varied = last != last_rows_.end() && last->second != *given;
  last_rows_[rule.index] = *given;
  if (*given != *rows) {
    Violate(facts, call, std::to_string(*given) + " rows, as " + name,
            std::to_string(*rows) + " rows", verdict);
  }
  return true;
}

}  // namespace

const Relation* OutputEqual() {
  static const auto* const kForm =
      new ProcessRelation<OutputSpec, OutputsOfProcess>(
          "APIOutput", NewSeenGenerator<OutputsSeen>);
  return kForm;
}

}  // namespace traincheck
