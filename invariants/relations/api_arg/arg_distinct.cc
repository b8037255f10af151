#include "invariants/relations/api_arg/arg_distinct.h"

#include <map>
#include <memory>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "invariants/rules/function_match.h"
#include "invariants/rules/functions_in_windows.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/recorded_calls.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

struct DistinctSpec {
  FunctionMatch function;
  std::string argument;
  FunctionMatch within;

  nlohmann::json ToJson() const {
    return {{"is", "distinct"},
            {"function", traincheck::ToJson(function)},
            {"argument", argument},
            {"within", traincheck::ToJson(within)}};
  }
  std::string Describe() const {
    return "In one call of " + within.Describe() + ", " + function.Describe() +
           " is called on each tensor (" + argument + ") once at most.";
  }
  void AddNeeds(CaptureNeeds* needs) const {
    needs->Calls(function.text).arguments.insert(argument);
    AddCalls(within, needs);
  }
  const FunctionMatch* Window() const { return &within; }
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<DistinctSpec> Parse(const nlohmann::json& parameters,
                                            const std::string& path);
};

absl::StatusOr<DistinctSpec> DistinctSpec::Parse(
    const nlohmann::json& parameters, const std::string& path) {
  DistinctSpec spec;
  JsonReader reader(parameters, path);
  if (reader.String("is") != "distinct") reader.Fail("is", "not \"distinct\"");
  spec.function = ReadFunctionMatch(&reader);
  // The argument has a name that only a function, or the functions of one role,
  // have in common.
  if (spec.function.level == Level::kCategory) {
    reader.Fail("function", "neither name nor role");
  }
  spec.argument = reader.String("argument");
  spec.within = ReadFunctionMatch(&reader, "within");
  return reader.Finish(spec);
}

// Functions that may be meant to be called once for each tensor: those that
// overwrite it.
bool Overwrites(const FunctionInfo& function) {
  return function.category.text() == "initialiser" ||
         (!function.roles.empty() && function.roles.back() == "initialiser") ||
         (!function.name.empty() && function.name.back() == '_' &&
          function.category.text() == "operation");
}

// For each pair of a call and a call inside it: was a tensor overwritten twice
// in one of these windows, and did one of them hold several tensors?
class DistinctTensorsSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // The call is looked at before it is on the list: it is not inside itself.
    std::vector<Open>& open = open_[call.ring];
    if (!open.empty() && call.function && Overwrites(*call.function)) {
      for (const CallArgument& argument :
           ArgumentsOf(call, facts.definitions()).all) {
        const uint64_t storage = StorageOf(&argument.value);
        if (storage == 0) continue;
        // Any of the open calls may be the window; which of them is worth a
        // rule shows at the end.
        for (Open& around : open) {
          See(around, {call.function_id, argument.name}, storage);
        }
        break;  // the first tensor is the one that is overwritten
      }
    }
    open.push_back({call.number, call.function_id, {}});
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::vector<Open>& open = open_[call.ring];
    if (!open.empty() && open.back().number == call.number) open.pop_back();
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    for (const auto& [key, twice] : seen_) {
      const auto& [window, function, argument] = key;
      const FunctionInfo* around = definitions.Function(window);
      const FunctionInfo* inner = definitions.Function(function);
      // In a function that calls it on one tensor there is nothing to tell
      // apart.
      if (twice.again || !twice.several || !around || !inner) continue;
      const DistinctSpec spec{
          {Level::kName, inner->name}, argument, {Level::kName, around->name}};
      // A rule that names a function of the user's says nothing to other
      // programs.
      const bool general = spec.function.IsGeneral() && spec.within.IsGeneral();
      out->Add(
          {spec.ToJson(), general ? Scope::kGeneral : Scope::kExperiment, {}});
    }
  }

 private:
  using Inner = std::pair<uint32_t, std::string>;  // function, argument
  struct Open {
    uint64_t number = 0;
    uint32_t function = 0;
    std::map<Inner, std::set<uint64_t>> storages;
  };
  struct Twice {
    bool again = false;    // some window had a tensor twice
    bool several = false;  // some window had more than one tensor
  };

  // Both flags only ever rise, so that one window with the same tensor twice
  // rules the pair out for the whole run.
  void See(Open& around, const Inner& inner, uint64_t storage) {
    std::set<uint64_t>& storages = around.storages[inner];
    Twice& twice = seen_[{around.function, inner.first, inner.second}];
    twice.again |= !storages.insert(storage).second;
    twice.several |= storages.size() > 1;
  }

  std::map<uint32_t, std::vector<Open>> open_;  // by ring
  std::map<std::tuple<uint32_t, uint32_t, std::string>, Twice> seen_;
};

using DistinctRule = SpecRule<DistinctSpec>;
using Judged = JudgedRules<DistinctRule>;

class DistinctInProcess : public ProcessObserver {
 public:
  explicit DistinctInProcess(const Judged* judged)
      : judged_(judged), known_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    known_.OnDefinition(type, id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    const auto& concerned = known_.Of(call);
    // Before its own window opens, if it is one as well: a call does not
    // contain itself.
    if (!concerned.inner.empty() && !open_[call.ring].empty()) {
      const ToldArguments told = ArgumentsOf(call, facts.definitions());
      for (const size_t place : concerned.inner) {
        Give(facts, call, told, place);
      }
    }
    if (concerned.windows.empty()) return;
    Window window{call, facts.gaps(), facts.recorded().now(), {}};
    // An entry from the start says which rules watch this window: a function
    // may be the event of rules that have other windows.
    for (const size_t place : concerned.windows) window.tensors[place];
    open_[call.ring].push_back(std::move(window));
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::vector<Window>& open = open_[call.ring];
    if (open.empty() || open.back().call.number != call.number) return;
    const Window window = std::move(open.back());
    open.pop_back();
    // A window that an exception cut short says nothing. A tensor that came
    // twice before was reported at once.
    if (outcome == CallOutcome::kRaised) return;
    for (const auto& [place, tensors] : window.tensors) {
      // One tensor cannot come twice, so there is nothing to decide.
      if (tensors.told || tensors.sites.size() + tensors.missed < 2) continue;
      Verdict verdict = NewVerdict(facts, RuleAt(place).index, /*object=*/0);
      // Each tensor could have come again.
      verdict.trials = static_cast<uint32_t>(tensors.sites.size());
      // A tensor that was not recorded, or a call that was missed, may have
      // been the second one with the same memory.
      const std::string missed =
          tensors.missed > 0
              ? NotRecordedWords("the tensor",
                                 RuleAt(place).spec.function.Describe(), facts)
              : recorded_.WhyMissed(facts, RuleAt(place).spec.function,
                                    window.recorded, window.gaps);
      if (outcome == CallOutcome::kUnknown) {
        MarkUnknown("the end of a call is missing", &verdict);
      } else if (!missed.empty()) {
        MarkUnknown(missed, &verdict);
      }
      judged_->sink->OnVerdict(verdict);
    }
  }

  void Fields(Archive& archive) override { archive(open_); }

 private:
  // What one rule has seen in one window.
  struct Tensors {
    std::map<uint64_t, uint32_t> sites;  // by memory
    uint64_t missed = 0;
    bool told = false;
    void Fields(Archive& archive) { archive(sites, missed, told); }
  };
  struct Window {
    Call call;
    uint64_t gaps = 0;
    RecordedSince recorded;
    std::map<size_t, Tensors> tensors;  // by place of the rule
    void Fields(Archive& archive) { archive(call, gaps, recorded, tensors); }
  };

  const DistinctRule& RuleAt(size_t place) const {
    return judged_->rules[place];
  }

  // The call gives its tensor to each open window around it, at any depth.
  void Give(const ProcessFacts& facts, const Call& call,
            const ToldArguments& told, size_t place) {
    const uint64_t storage = StorageOf(told.Find(RuleAt(place).spec.argument));
    for (Window& window : open_[call.ring]) {
      const auto found = window.tensors.find(place);
      if (found == window.tensors.end()) continue;
      Tensors& tensors = found->second;
      if (storage == 0) {
        ++tensors.missed;
        continue;
      }
      const auto [first, added] = tensors.sites.emplace(storage, call.site);
      // A window is violated once, however often tensors come again.
      if (added || tensors.told) continue;
      tensors.told = true;
      Violate(facts, call, first->second, place);
    }
  }

  void Violate(const ProcessFacts& facts, const Call& call, uint32_t first,
               size_t place) {
    const DistinctSpec& spec = RuleAt(place).spec;
    Verdict verdict = NewVerdict(facts, RuleAt(place).index, /*object=*/0);
    MarkViolated(facts, call, &verdict);
    Finding& finding = verdict.finding;
    // The mistake shows only from both lines, and the call of this verdict has
    // just the second one.
    AddOnce(facts.definitions().Site(first), &finding.sites);
    AddOnce(spec.within.text, &finding.apis);
    finding.expected = "each tensor once";
    finding.seen = spec.function.Describe() +
                   " was given the same tensor twice in one call of " +
                   spec.within.Describe();
    judged_->sink->OnVerdict(verdict);
  }

  const Judged* const judged_;
  FunctionsInWindows<DistinctRule> known_;
  RecordedCalls recorded_;
  std::map<uint32_t, std::vector<Window>> open_;  // by ring
};

}  // namespace

const Relation* ArgDistinct() {
  static const auto* const kForm =
      new ProcessRelation<DistinctSpec, DistinctInProcess>(
          "APIArg", NewSeenGenerator<DistinctTensorsSeen>);
  return kForm;
}

}  // namespace traincheck
