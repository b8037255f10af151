#include "invariants/relations/event_contain/contain_reached.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/variable_state.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/relations/event_contain/result_users.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

// What is zero at first (the second half of an adapter) moves within so many
// steps.
constexpr uint32_t kFirstSteps = 3;

// The first steps of one optimizer.
struct Begin {
  uint32_t steps = 0;          // that a backward came before
  std::set<uint32_t> reached;  // variables
  std::set<uint32_t> unsure;   // that were not recorded at some of them
  uint64_t gaps = 0;           // when the first of them ended

  void Fields(Archive& archive) { archive(steps, reached, unsure, gaps); }
};

// A module by the root and the path of its definition.
using ModulePath = std::pair<uint32_t, std::string>;

// "encoder.layer" of "encoder.layer.weight"; "" of "weight".
std::string OwnerPath(const std::string& name) {
  const size_t dot = name.rfind('.');
  return dot == std::string::npos ? "" : name.substr(0, dot);
}

// The modules around it, outermost first, and itself: "", "encoder",
// "encoder.layer" of the last.
std::vector<std::string> PathsTo(const std::string& path) {
  std::vector<std::string> paths = {""};
  if (path.empty()) return paths;
  for (size_t dot = path.find('.'); dot != std::string::npos;
       dot = path.find('.', dot + 1)) {
    paths.push_back(path.substr(0, dot));
  }
  paths.push_back(path);
  return paths;
}

// The held parameters without a gradient, by the module that has them.
class WithoutGradient {
 public:
  void Add(const VariableInfo& info, bool missing) {
    const ModulePath owner(info.root, OwnerPath(info.name));
    if (missing) names_[owner].push_back(info.FullName());
    for (const std::string& path : PathsTo(owner.second)) {
      const ModulePath module(owner.first, path);
      // One parameter with a gradient is enough for all modules around it.
      whole_[module] = missing && whole_.emplace(module, true).first->second;
    }
  }

  // The constant that a layer adds has no gradient where the loss is about
  // derivatives by its input (physics-informed networks, energies).
  static bool IsConstant(const std::string& name) {
    return name == "bias" || name.ends_with(".bias");
  }

  // Sorted, of the modules for which `is_wanted` is true, given the modules
  // around them, and themselves, of which nothing had a gradient. A bias is
  // none of them where others of its module had one.
  template <typename IsWanted>
  std::vector<std::string> Names(const IsWanted& is_wanted) const {
    std::vector<std::string> names;
    for (const auto& [owner, of_module] : names_) {
      std::vector<std::string> paths = PathsTo(owner.second);
      std::erase_if(paths, [&](const std::string& path) {
        return !whole_.at({owner.first, path});
      });
      if (!is_wanted(owner.first, paths)) continue;
      const bool has_others = !whole_.at(owner);
      std::copy_if(of_module.begin(), of_module.end(),
                   std::back_inserter(names), [&](const std::string& name) {
                     return !has_others || !IsConstant(name);
                   });
    }
    std::sort(names.begin(), names.end());
    return names;
  }

 private:
  std::map<ModulePath, std::vector<std::string>> names_;
  std::map<ModulePath, bool> whole_;  // nothing below it had one
};

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
    // Evaluations count as well: a result that is used there is wanted.
    users_.OnCallBegin(call);
    if (call.Is(kGradEnabled) && !call.Is(kInsideBackward)) {
      called_.insert(call.object);
    }
  }

  // Remembered from the backward on, because a program may take away the
  // gradients of some parts before its steps in the first epoch.
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    if (event.point == StatePoint::kBackwardEnd && event.Has(kHasGrad)) {
      given_.insert(event.variable_id);
    }
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    users_.OnCallEnd(call);
    if (!IsOptimizerStep(call) || outcome == CallOutcome::kRaised) return;
    const std::vector<const ContainRule*>& rules = index_.Find(call).windows;
    const Optimizer* optimizer = facts.ownership().Find(call.object);
    if (rules.empty() || !optimizer) return;
    Begin& begin = begins_[call.object];
    if (begin.steps == kFirstSteps) return;
    // A step without a backward, or with one that may be missing, cannot show a
    // gradient and does not count.
    if (facts.optimizer_books().BackwardsSince(call.object).value_or(0) == 0)
      return;
    Add(facts, *optimizer, &begin);
    if (begin.steps < kFirstSteps) return;
    for (const ContainRule* rule : rules) {
      Judge(facts, call, *rule, *optimizer, begin);
    }
    // It is judged once; its lists would be saved for nothing.
    begin.reached.clear();
    begin.unsure.clear();
  }

  void Fields(Archive& archive) override {
    archive(begins_, called_, users_, given_);
  }

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

  using Modules = std::map<ModulePath, uint32_t>;

  // Made when a rule is judged, once for each optimizer: kept up to date it
  // would cost something at each definition.
  static Modules ModulesOf(const ProcessDefinitions& definitions) {
    Modules modules;
    for (const auto& [id, object] : definitions.objects()) {
      const bool is_root = object.root == 0 || object.path.empty();
      modules[is_root ? ModulePath(id, "")
                      : ModulePath(object.root, object.path)] = id;
    }
    return modules;
  }

  bool IsCalled(const Modules& modules, const ModulePath& path) const {
    const auto module = modules.find(path);
    return module != modules.end() && called_.count(module->second) > 0;
  }

  // Is the first called one of these modules the last that the one around it
  // calls? Nobody has to want its result: BERT computes its pooler always.
  bool EndsACall(const Modules& modules, uint32_t root,
                 const std::vector<std::string>& paths) const {
    for (const std::string& path : paths) {
      if (!IsCalled(modules, {root, path})) continue;
      return !path.empty() && !users_.MayBeUsed(modules.at({root, path}));
    }
    return false;
  }

  void Judge(const ProcessFacts& facts, const Call& step,
             const ContainRule& rule, const Optimizer& optimizer,
             const Begin& begin) {
    const Modules modules = ModulesOf(facts.definitions());
    WithoutGradient without;
    bool unknown = false;
    for (const HeldVariable& held : optimizer.held) {
      const uint32_t variable = held.variable;
      const VariableInfo* info = facts.definitions().Variable(variable);
      const VariableState* state = facts.Variable(variable);
      if (!info || !state || state->trainable() == Tri::kNo) continue;
      const bool had = begin.reached.count(variable) || given_.count(variable);
      // What no call uses gets no gradient, rightly (a head for another task).
      if (!had && !IsCalled(modules, {info->root, OwnerPath(info->name)})) {
        continue;
      }
      // A gradient that was not recorded at one step may have been there: the
      // parameter is not missing one.
      const bool unsure = !had && begin.unsure.count(variable);
      unknown |= unsure;
      without.Add(*info, /*missing=*/!had && !unsure);
    }
    // Two rules share the modules between them: those whose result may be
    // unwanted are advice.
    const bool at_ends = rule.spec.Is(StateKind::kEndReached);
    const std::vector<std::string> missing =
        without.Names([&](uint32_t root, const auto& paths) {
          return EndsACall(modules, root, paths) == at_ends;
        });
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (begin.gaps != facts.gaps()) {
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (!missing.empty()) {
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
  ResultUsers users_;
  std::set<uint32_t> given_;  // variables that some backward gave a gradient
};

}  // namespace

const Relation* ContainReached() {
  static const auto* const kForm = new ContainForm<FirstGradients>(
      "EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
