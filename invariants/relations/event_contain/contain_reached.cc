#include "invariants/relations/event_contain/contain_reached.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

// What is zero at first (an adapter's second half) moves within so many.
constexpr uint32_t kFirstSteps = 3;

// Its first steps.
struct Begin {
  uint32_t steps = 0;          // that a backward came before
  std::set<uint32_t> reached;  // variables
  std::set<uint32_t> unsure;   // that were not recorded at some of them
  uint64_t gaps = 0;           // when the first of them ended

  void Fields(Archive& archive) { archive(steps, reached, unsure, gaps); }
};

// "encoder.layer" of "encoder.layer.weight"; "" of "weight".
std::string OwnerPath(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

class FirstGradients : public ProcessObserver {
 public:
  explicit FirstGradients(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!HasCategory(call, CallCategory::kForward)) return;
    if (call.Is(kGradEnabled) && !call.Is(kInsideBackward)) {
      called_.insert(call.object);
    }
  }

  // A training may take away the gradients of some parts in its first epoch.
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    if (event.point == StatePoint::kBackwardEnd && event.Has(kHasGrad)) {
      given_.insert(event.variable_id);
    }
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (!IsOptimizerStep(call) || outcome == CallOutcome::kRaised) return;
    const std::vector<const ContainRule*>& rules = index_.Find(call).windows;
    const Optimizer* optimizer = facts.ownership().Find(call.object);
    if (rules.empty() || !optimizer) return;
    Begin& begin = begins_[call.object];
    if (begin.steps == kFirstSteps) return;
    if (facts.BackwardsSince(call.object).value_or(0) == 0) return;
    Add(facts, *optimizer, &begin);
    if (begin.steps < kFirstSteps) return;
    for (const ContainRule* rule : rules) {
      Judge(facts, call, *rule, *optimizer, begin);
    }
    begin.reached.clear();
    begin.unsure.clear();
  }

  void Fields(Archive& archive) override { archive(begins_, called_, given_); }

 private:
  static void Add(const ProcessFacts& facts, const Optimizer& optimizer,
                  Begin* begin) {
    if (begin->steps++ == 0) begin->gaps = facts.gaps();
    for (const HeldVariable& held : optimizer.held) {
      const VariableState* state = facts.Variable(held.variable);
      const Tri has = state ? state->has_grad_at_step() : Tri::kUnknown;
      if (has == Tri::kYes) begin->reached.insert(held.variable);
      if (has == Tri::kUnknown) begin->unsure.insert(held.variable);
    }
  }

  // Modules by the root and the path of their definition.
  static std::map<std::pair<uint32_t, std::string>, uint32_t> ModulesOf(
      const ProcessDefinitions& definitions) {
    std::map<std::pair<uint32_t, std::string>, uint32_t> modules;
    for (const auto& [id, object] : definitions.objects()) {
      const bool is_root = object.root == 0 || object.path.empty();
      modules[is_root ? std::pair(id, std::string())
                      : std::pair(object.root, object.path)] = id;
    }
    return modules;
  }

  void Judge(const ProcessFacts& facts, const Call& step,
             const ContainRule& rule, const Optimizer& optimizer,
             const Begin& begin) {
    const auto modules = ModulesOf(facts.definitions());
    std::vector<std::string> missing;
    bool unknown = false;
    for (const HeldVariable& held : optimizer.held) {
      const uint32_t variable = held.variable;
      if (begin.reached.count(variable) || given_.count(variable)) continue;
      const VariableInfo* info = facts.definitions().Variable(held.variable);
      const VariableState* state = facts.Variable(held.variable);
      if (!info || !state || state->trainable() == Tri::kNo) continue;
      const auto owner = modules.find({info->root, OwnerPath(info->name)});
      if (owner == modules.end() || !called_.count(owner->second)) continue;
      if (begin.unsure.count(held.variable)) {
        unknown = true;
      } else {
        missing.push_back(info->FullName());
      }
    }
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (begin.gaps != facts.gaps()) {
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (!missing.empty()) {
      std::sort(missing.begin(), missing.end());
      MarkViolated(facts, step, rule, &verdict);
      verdict.finding.variables = missing;
      verdict.finding.seen =
          std::to_string(missing.size()) + " had no gradient at the first " +
          std::to_string(kFirstSteps) + " steps: " + ListWords(missing, 3);
    } else if (unknown) {
      MarkUnknown("gradients were not recorded at the first steps", &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  std::map<uint32_t, Begin> begins_;  // by optimizer
  std::set<uint32_t> called_;         // modules, to train
  std::set<uint32_t> given_;  // variables that some backward gave a gradient
};

}  // namespace

const Relation* ContainReached() {
  static const auto* const kForm = new ContainForm<FirstGradients>(
      "EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
