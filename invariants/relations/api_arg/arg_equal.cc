#include "invariants/relations/api_arg/arg_equal.h"

#include <map>
#include <string>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/calls_across_ranks.h"
#include "invariants/rules/function_match.h"
#include "invariants/rules/plain_value.h"
#include "invariants/trace/call_category.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// Arguments that took several values, where ranks train replicas: what is
// always the same cannot differ.
class ArgumentsSeen : public ProcessObserver {
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

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [id, arguments] : seen_) {
      const FunctionInfo* function = definitions.Function(id);
      if (!function || function->name.empty()) continue;
      const FunctionMatch match{Level::kName, function->name};
      for (const auto& [argument, seen] : arguments) {
        if (!seen.several) continue;
        // Of the experiment: ranks need not do the same outside training (the
        // first evaluates and saves alone).
        out->Add({{{"is", "equal"},
                   {"across", "ranks"},
                   {"function", ToJson(match)},
                   {"argument", argument}},
                  Scope::kExperiment,
                  {}});
      }
    }
  }

 private:
  // Only the last value is kept: whether a second one ever came is all that is
  // asked.
  struct Seen {
    bool any = false;
    bool several = false;
    std::string last;
  };
  std::map<uint32_t, std::map<std::string, Seen>> seen_;  // by function
};

}  // namespace

const Relation* ArgEqual() {
  static const Relation* const kForm =
      NewCallsAcrossRanks("APIArg", NewSeenGenerator<ArgumentsSeen>);
  return kForm;
}

}  // namespace traincheck
