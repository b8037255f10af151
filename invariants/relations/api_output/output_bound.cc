#include "invariants/relations/api_output/output_bound.h"

#include <limits>
#include <map>
#include <memory>
#include <optional>
#include <tuple>
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

constexpr uint64_t kMostDimensions = 8;

struct BoundSpec {
  FunctionMatch function;
  uint64_t dimension = 0;
  std::string over;
  std::string bound;

  nlohmann::json ToJson() const {
    return {{"is", "at_most"},
            {"function", traincheck::ToJson(function)},
            {"dimension", dimension},
            {"over", over},
            {"bound", bound}};
  }
  std::string Describe() const {
    return "The result of " + function.Describe() + " is longer than " + over +
           " (dimension " + std::to_string(dimension) + ") by " + bound +
           " at most.";
  }
  void AddNeeds(CaptureNeeds* needs) const {
    PlannedCall& content = needs->Calls(function.text);
    content.returns = true;
    content.arguments.insert({over, bound});
  }
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<BoundSpec> Parse(const nlohmann::json& parameters,
                                         const std::string& path);
};

absl::StatusOr<BoundSpec> BoundSpec::Parse(const nlohmann::json& parameters,
                                           const std::string& path) {
  BoundSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "at_most") reader.Fail("is", "not \"at_most\"");
  spec.function = ReadFunctionMatch(&reader);
  // Only a function, or the functions of one role, have parameters of these
  // names.
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  spec.dimension = reader.Unsigned("dimension");
  if (spec.dimension >= kMostDimensions) {
    reader.Fail("dimension", "not 0 to 7");
  }
  spec.over = reader.String("over");
  spec.bound = reader.String("bound");
  return reader.Finish(spec);
}

// None where the value is not a tensor or has fewer dimensions: no hypothesis
// is made of it.
std::optional<int64_t> SizeOf(const CallValue* value, uint64_t dimension) {
  const auto* tensor = value ? value->Get<TensorValue>() : nullptr;
  if (!tensor || dimension >= tensor->sizes.size()) return std::nullopt;
  const uint64_t size = tensor->sizes[dimension];
  // Differences of those that are left do not overflow.
  if (size > std::numeric_limits<int64_t>::max()) return std::nullopt;
  return static_cast<int64_t>(size);
}

// Programs compute lengths: a float without a fraction counts as its integer,
// one with a fraction bounds nothing.
std::optional<int64_t> NumberOf(const CallValue* value) {
  if (!value) return std::nullopt;
  if (const auto* number = value->Get<int64_t>()) return *number;
  const auto* number = value->Get<double>();
  const auto whole = number ? WholePart(*number) : std::nullopt;
  if (whole && static_cast<double>(*whole) != *number) return std::nullopt;
  return whole;
}

// Was it recorded, as something that has no such size?
bool HasNoSize(const CallValue* value, uint64_t dimension) {
  if (!value || value->Get<std::monostate>()) return false;
  const auto* tensor = value->Get<TensorValue>();
  return !tensor || (tensor->dimensions && dimension >= *tensor->dimensions);
}

// Was it recorded, as something that is not a number? The number in a tensor
// is not recorded.
bool IsNoNumber(const CallValue* value) {
  return value && !value->Get<std::monostate>() && !value->Get<TensorValue>() &&
         !value->Get<int64_t>() && !value->Get<double>();
}

// Tries every number that a user's function is given as a bound for every
// growth of its result, and keeps the pairs that held in each call.
class OutputSizesSeen : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (outcome != CallOutcome::kReturned || call.result.empty() ||
        call.content.empty() || !call.function ||
        FunctionMatch{Level::kName, call.function->name}.IsGeneral()) {
      return;
    }
    const auto result = ResultOf(call, facts.definitions());
    const auto* tensor = result ? result->Get<TensorValue>() : nullptr;
    if (!tensor) return;
    // Costs numbers times tensors times dimensions a call, in inference alone.
    // The arguments are decoded once for all pairs.
    const ToldArguments told = ArgumentsOf(call, facts.definitions());
    for (const CallArgument& bound : told.all) {
      const auto most = NumberOf(&bound.value);
      if (!most || *most < 1) continue;
      // Each number may be the bound of each growth. A number that is not one
      // is passed in some call, or never reached.
      for (const CallArgument& over : told.all) {
        for (uint64_t d = 0; d < tensor->sizes.size(); ++d) {
          const auto before = SizeOf(&over.value, d);
          const auto after = SizeOf(&*result, d);
          if (!before || !after) continue;
          See(seen_[call.function_id][{d, over.name, bound.name}],
              *after - *before, *most);
        }
      }
    }
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, bounds] : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      for (const auto& [key, seen] : bounds) {
        // A number that was never reached may be any large one (a seed), and
        // one that was passed bounds something else.
        if (seen.passed || !seen.reached) continue;
        const auto& [dimension, over, bound] = key;
        const BoundSpec spec{
            {Level::kName, function->name}, dimension, over, bound};
        out->Add({spec.ToJson(), Scope::kExperiment, {}});
      }
    }
  }

 private:
  // Dimension, the tensor whose length is compared, and the bound.
  using Key = std::tuple<uint64_t, std::string, std::string>;
  struct Seen {
    bool reached = false;
    bool passed = false;
  };
  static void See(Seen& seen, int64_t grown, int64_t most) {
    seen.reached |= grown == most;
    seen.passed |= grown > most;
  }

  std::unordered_map<uint32_t, std::map<Key, Seen>> seen_;  // by function
};

using BoundRule = SpecRule<BoundSpec>;
using Judged = JudgedRules<BoundRule>;

class BoundsOfProcess : public ProcessObserver {
 public:
  explicit BoundsOfProcess(const Judged* judged)
      : judged_(judged), concerned_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    concerned_.OnDefinition(type, id);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    // A call that raised has no result that could be too long.
    if (outcome == CallOutcome::kRaised) return;
    for (const BoundRule* rule : concerned_.Of(call)) {
      Judge(facts, call, *rule);
    }
  }
  void Fields(Archive& archive) override { archive(last_); }

 private:
  void Judge(const ProcessFacts& facts, const Call& call,
             const BoundRule& rule) {
    const BoundSpec& spec = rule.spec;
    const auto result = ResultOf(call, facts.definitions());
    const ToldArguments told = ArgumentsOf(call, facts.definitions());
    const CallValue* returned = result ? &*result : nullptr;
    const CallValue* over = told.Find(spec.over);
    const CallValue* bound = told.Find(spec.bound);
    // A call that is not given both, or does not return a tensor, has no bound
    // (max_new_tokens=None).
    if (HasNoSize(returned, spec.dimension) ||
        HasNoSize(over, spec.dimension) || IsNoNumber(bound)) {
      return;
    }
    const auto after = SizeOf(returned, spec.dimension);
    const auto before = SizeOf(over, spec.dimension);
    const auto most = NumberOf(bound);
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    if (!after || !before || !most) {
      MarkUnknown(facts.recorded().whole()
                      ? NotRecordedWords("sizes or " + spec.bound,
                                         spec.function.Describe(), facts)
                      : facts.not_sampled(),
                  &verdict);
      return judged_->sink->OnVerdict(verdict);
    }
    // A result that is shorter than the input is a pass: the rule is about
    // growth alone.
    const int64_t grown = *after - *before;
    const auto last = last_.find(rule.index);
    // Calls that all grow by the same length say little of the bound: an equal
    // growth is not a trial.
    verdict.varied = last != last_.end() && last->second != grown;
    last_[rule.index] = grown;
    if (grown > *most) {
      MarkViolated(facts, call, &verdict);
      verdict.finding.expected =
          std::to_string(*most) + " more at most, by " + spec.bound;
      verdict.finding.seen = std::to_string(grown) + " more than " + spec.over;
    }
    judged_->sink->OnVerdict(verdict);
  }

  const Judged* const judged_;
  RulesOfFunctions<BoundRule> concerned_;
  std::map<size_t, int64_t> last_;  // growth, by rule
};

}  // namespace

const Relation* OutputBound() {
  static const auto* const kForm =
      new ProcessRelation<BoundSpec, BoundsOfProcess>(
          "APIOutput", NewSeenGenerator<OutputSizesSeen>);
  return kForm;
}

}  // namespace traincheck
