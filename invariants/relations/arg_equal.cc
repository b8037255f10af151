#include "invariants/relations/arg_equal.h"

#include <map>
#include <memory>
#include <set>
#include <utility>

#include "invariants/facts/call_values.h"
#include "invariants/relations/calls_across_ranks.h"
#include "invariants/relations/hypothesis_set.h"
#include "invariants/relations/plain_value.h"

namespace traincheck {

namespace {

RankCallSpec ParseSpec(const nlohmann::json& parameters,
                       const std::string& path, absl::Status* status) {
  RankCallSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "equal") reader.Fail("is", "not \"equal\"");
  if (reader.String("across") != "ranks") {
    reader.Fail("across", "not \"ranks\"");
  }
  spec.function = ReadFunctionMatch(&reader);
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  spec.argument = reader.String("argument");
  if (spec.argument.empty()) reader.Fail("argument", "empty");
  *status = reader.Finish();
  return spec;
}

RankCallSpec SpecOf(const nlohmann::json& parameters) {
  absl::Status status;
  return ParseSpec(parameters, "", &status);
}

// Arguments that took several values, where ranks train replicas: what is
// always the same cannot differ.
class SeenInProcess : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (call.content.empty() || !call.function || ReplicaRanks(facts).empty()) {
      return;
    }
    // What a model computes of its own batch differs.
    if (HasCategory(call, CallCategory::kForward)) return;
    std::map<std::string, Seen>& seen = seen_[call.function_id];
    for (const CallArgument& argument :
         ArgumentsOf(call, facts.definitions()).all) {
      const auto plain = PlainValue(argument.value);
      if (!plain || plain->is_null()) continue;
      Seen& values = seen[argument.name];
      const std::string text = plain->dump();
      values.several |= values.any && values.last != text;
      values.any = true;
      values.last = text;
    }
  }

  void Collect(const Definitions& definitions, HypothesisSet* out) const {
    for (const auto& [id, arguments] : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      const FunctionMatch match{Level::kName, function->name};
      for (const auto& [argument, seen] : arguments) {
        if (!seen.several) continue;
        out->Add({{{"is", "equal"},
                   {"across", "ranks"},
                   {"function", ToJson(match)},
                   {"argument", argument}},
                  match.IsGeneral() ? Scope::kGeneral : Scope::kExperiment,
                  {}});
      }
    }
  }

 private:
  struct Seen {
    bool any = false;
    bool several = false;
    std::string last;
  };
  std::map<uint32_t, std::map<std::string, Seen>> seen_;  // by function
};

class ArgEqualForm : public Relation {
 public:
  const char* name() const override { return "equal"; }

  absl::Status Check(const nlohmann::json& parameters,
                     const std::string& path) const override {
    absl::Status status;
    ParseSpec(parameters, path, &status);
    return status;
  }

  std::string Describe(const nlohmann::json& parameters) const override {
    return "On all ranks that train replicas of a model, " +
           SpecOf(parameters).What() + " is the same.";
  }

  std::vector<const Fact*> FactsFor(const nlohmann::json&) const override {
    return {};
  }

  void AddNeeds(const nlohmann::json& parameters,
                CaptureNeeds* needs) const override {
    const RankCallSpec spec = SpecOf(parameters);
    CallContent& content = needs->Calls(spec.function.text);
    content.arguments.insert(spec.argument);
  }

  std::unique_ptr<Generator> NewGenerator() const override {
    return std::make_unique<SeenGenerator<SeenInProcess>>();
  }

  std::unique_ptr<RunObserver> NewEvaluator(const std::vector<Rule>& rules,
                                            RuleSink* sink) const override {
    std::vector<RankCallRule> mine;
    for (size_t i = 0; i < rules.size(); ++i) {
      mine.push_back({i, SpecOf(rules[i].invariant->parameters)});
    }
    return NewCallsAcrossRanksEvaluator(std::move(mine), sink);
  }
};

}  // namespace

const Relation* ArgEqual() {
  static const auto* const kForm = new ArgEqualForm;
  return kForm;
}

}  // namespace traincheck
