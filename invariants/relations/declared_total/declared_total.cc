#include "invariants/relations/declared_total/declared_total.h"

#include <algorithm>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/whole_part.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// A smaller number may be anything, and equal the number of steps of a short
// run by accident.
constexpr int64_t kLeastTotal = 5;

struct TotalSpec {
  FunctionMatch function;
  std::string argument;

  nlohmann::json ToJson() const {
    return {{"function", traincheck::ToJson(function)}, {"argument", argument}};
  }
  std::string Describe() const {
    return "A run makes exactly " + argument + " optimizer steps (the " +
           argument + " given to " + function.Describe() + ").";
  }
  void AddNeeds(CaptureNeeds* needs) const {
    needs->Calls(function.text).arguments.insert(argument);
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<TotalSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path);
};

absl::StatusOr<TotalSpec> TotalSpec::Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
  TotalSpec spec;
  JsonReader reader(parameters, path);
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  spec.argument = reader.String("argument");
  if (spec.argument.empty()) reader.Fail("argument", "empty");
  return reader.Finish(spec);
}

// Programs compute totals by divisions: a float counts as its whole part, one
// that is infinite or NaN is not a number of steps.
std::optional<int64_t> NumberOf(const CallValue* value) {
  if (!value) return std::nullopt;
  if (const auto* number = value->Get<int64_t>()) return *number;
  const auto* number = value->Get<double>();
  return number ? WholePart(*number) : std::nullopt;
}

// Steps of the optimizers that a process stepped.
class StepCount {
 public:
  void OnCallEnd(const Call& call, CallOutcome outcome) {
    if (IsOptimizerStep(call) && outcome == CallOutcome::kReturned) {
      ++steps_[call.object];
    }
  }
  // Optimizers that step less often (a discriminator's) do not set the length
  // of a run.
  int64_t most_made() const {
    uint64_t most = 0;
    for (const auto& [optimizer, steps] : steps_) most = std::max(most, steps);
    return static_cast<int64_t>(most);
  }
  // The same with the steps that a scaler has skipped.
  int64_t most_tried(const ProcessFacts& facts) const {
    uint64_t most = 0;
    // All objects: an optimizer may have made none of its steps.
    for (const auto& [object, info] : facts.definitions().objects()) {
      const auto made = steps_.find(object);
      most = std::max(most, facts.clock().SkippedSteps(object) +
                                (made == steps_.end() ? 0 : made->second));
    }
    return std::max(most_made(), static_cast<int64_t>(most));
  }
  void Fields(Archive& archive) { archive(steps_); }

 private:
  std::map<uint32_t, uint64_t> steps_;  // by optimizer
};

class TotalsSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (call.content.empty() || !call.function || many_.count(call.function_id))
      return;
    // A function that is called again and again (more than three times)
    // announces nothing.
    std::map<std::string, int64_t>& told = told_[call.function_id];
    if (++calls_[call.function_id] > 3) {
      many_.insert(call.function_id);
      told_.erase(call.function_id);
      return;
    }
    for (const CallArgument& argument :
         ArgumentsOf(call, facts.definitions()).all) {
      const auto number = NumberOf(&argument.value);
      // A later call replaces what an earlier one announced, as where the rule
      // is judged.
      if (number && *number >= kLeastTotal) told[argument.name] = *number;
    }
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    steps_.OnCallEnd(call, outcome);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, arguments] : told_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      for (const auto& [argument, number] : arguments) {
        // Equality in one run may be an accident. The rule ships only where
        // runs that announced different numbers kept to them
        // (Verdict::context).
        if (number != steps_.most_made()) continue;
        const TotalSpec spec{{Level::kName, function->name}, argument};
        out->Add(
            {spec.ToJson(),
             spec.function.IsGeneral() ? Scope::kGeneral : Scope::kExperiment,
             {}});
      }
    }
  }

 private:
  StepCount steps_;
  std::unordered_map<uint32_t, uint64_t> calls_;
  std::set<uint32_t> many_;
  std::unordered_map<uint32_t, std::map<std::string, int64_t>> told_;
};

using TotalRule = SpecRule<TotalSpec>;
using Judged = JudgedRules<TotalRule>;

class TotalsOfProcess : public ProcessObserver {
 public:
  explicit TotalsOfProcess(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    for (const TotalRule* rule : concerned_.Of(call)) {
      Declared& declared = declared_[rule->index];
      const ToldArguments told = ArgumentsOf(call, facts.definitions());
      // The last call counts. One that does not tell its argument makes what
      // was announced before unknown.
      declared.total = NumberOf(told.Find(rule->spec.argument));
      declared.function = call.function_id;
      declared.site = call.site;
    }
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    steps_.OnCallEnd(call, outcome);
  }
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const TotalRule& rule : judged_->rules) {
      const auto declared = declared_.find(rule.index);
      // A rule whose function was not called has no window.
      if (declared != declared_.end()) {
        Judge(facts, end, rule, declared->second);
      }
    }
  }
  void Fields(Archive& archive) override { archive(steps_, declared_); }

 private:
  // What the last call of a rule's function has announced, kept until the
  // process ends.
  struct Declared {
    std::optional<int64_t> total;
    uint32_t function = 0;
    uint32_t site = 0;
    void Fields(Archive& archive) { archive(total, function, site); }
  };

  void Judge(const ProcessFacts& facts, ProcessEnd end, const TotalRule& rule,
             const Declared& declared) {
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    const int64_t made = steps_.most_made();
    const int64_t tried = steps_.most_tried(facts);
    // A run that was cut short says nothing of how long it was meant to be, and
    // missing records may hold steps.
    if (end != ProcessEnd::kClean) {
      MarkUnknown(WhoseEndWords(facts, end), &verdict);
    } else if (facts.gaps() > 0) {
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (!declared.total) {
      MarkUnknown(NotRecordedWords(rule.spec.argument,
                                   rule.spec.function.Describe(), facts),
                  &verdict);
    } else {
      // Runs that announce the same number are one trial: a constant may be the
      // number of steps by accident.
      verdict.context = static_cast<uint64_t>(*declared.total);
      if (*declared.total < made || *declared.total > tried) {
        Violate(facts, declared, made, tried, &verdict);
      } else if (*declared.total != made && *declared.total != tried) {
        MarkUnknown("a scaler skipped some optimizer steps on " + facts.Name() +
                        ", and whether " + rule.spec.argument +
                        " counts them is not known",
                    &verdict);
      }
    }
    judged_->sink->OnVerdict(verdict);
  }

  static void Violate(const ProcessFacts& facts, const Declared& declared,
                      int64_t made, int64_t tried, Verdict* verdict) {
    // The call is long over: its function and line are all that is kept of it.
    Call call;
    call.function_id = declared.function;
    call.site = declared.site;
    MarkViolated(facts, call, verdict);
    verdict->finding.expected =
        std::to_string(*declared.total) + " optimizer steps";
    verdict->finding.seen = std::to_string(made) + " when the run ended";
    if (tried == made) return;
    verdict->finding.seen +=
        ", " + std::to_string(tried) + " with those that a scaler skipped";
  }

  const Judged* const judged_;
  RulesOfFunctions<TotalRule> concerned_;
  StepCount steps_;
  std::map<size_t, Declared> declared_;  // by rule
};

}  // namespace

const Relation* DeclaredTotal() {
  static const auto* const kRelation =
      new ProcessRelation<TotalSpec, TotalsOfProcess>(
          "DeclaredTotal", NewSeenGenerator<TotalsSeen>);
  return kRelation;
}

}  // namespace traincheck
