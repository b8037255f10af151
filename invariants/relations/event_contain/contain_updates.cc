#include "invariants/relations/event_contain/contain_updates.h"

#include <algorithm>
#include <map>
#include <set>

#include "absl/strings/match.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/variable_state.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/blame.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// After so many steps in a row without a gradient none is expected any more.
// Fewer may be batches that were skipped.
constexpr uint32_t kIdleSteps = 3;

constexpr char kLbfgs[] = "torch.optim.lbfgs.LBFGS";

// What the step did to what it holds, over all held parameters.
struct Summary {
  size_t yes = 0;  // those of which it is so
  size_t unknown = 0;
  bool lr_unknown = false;
  bool lr_nonzero = false;
  Tri due = Tri::kNo;  // some has a gradient and a rate to change by
};

struct OpenStep {
  Call call;
  uint64_t gaps = 0;  // when it began

  void Fields(Archive& archive) { archive(call, gaps); }
};

bool IsEvery(const ContainRule& rule) {
  return std::get<StateInWindow>(rule.spec.event).every;
}

class UpdatesAtSteps : public ProcessObserver {
 public:
  explicit UpdatesAtSteps(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!IsOptimizerStep(call)) return;
    open_[call.object] = {call, facts.gaps()};
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (!IsOptimizerStep(call)) return;
    const auto open = open_.find(call.object);
    const bool whole = open != open_.end() && open->second.gaps == facts.gaps();
    if (open != open_.end()) open_.erase(open);
    if (outcome == CallOutcome::kRaised) return;
    const Optimizer* optimizer = facts.ownership().Find(call.object);
    // Counted before the rules are judged, because this step is one of those
    // that are idle.
    if (optimizer) CountIdle(facts, *optimizer, whole);
    for (const ContainRule* rule : index_.Find(call).windows) {
      if (rule->spec.Is(StateKind::kHeld) && whole && optimizer) {
        JudgeHeld(facts, call, *rule, *optimizer);
      } else if (rule->spec.Is(StateKind::kCurrent) && whole && optimizer) {
        JudgeCurrent(facts, call, *rule, *optimizer);
      } else if (!whole || !optimizer || optimizer->held.empty()) {
        Verdict verdict = NewVerdict(facts, *rule, call.object);
        MarkUnknown(whole ? "what the optimizer holds is not known"
                          : facts.gap_reason(),
                    &verdict);
        sink_->OnVerdict(verdict);
      } else if (IsEvery(*rule)) {
        JudgeEvery(facts, call, *rule, *optimizer);
      } else {
        JudgeSome(facts, call, *rule, *optimizer);
      }
    }
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const auto& [optimizer, step] : open_) {
      for (const ContainRule* rule : index_.Find(step.call).windows) {
        sink_->OnVerdict(CutOff(facts, *rule, optimizer, end));
      }
    }
    open_.clear();
  }

  void Fields(Archive& archive) override { archive(open_, idle_, moved_); }

 private:
  static std::string WhyUnrecorded(const ProcessFacts& facts) {
    return facts.recorded().whole() ? "parameters were not recorded at the step"
                                    : facts.not_sampled();
  }

  static Tri StatusOf(const ProcessFacts& facts, const ContainRule& rule,
                      uint32_t variable) {
    const VariableState* state = facts.Variable(variable);
    if (!state) return Tri::kUnknown;
    if (rule.spec.Is(StateKind::kTrainable)) return state->trainable();
    return rule.spec.Is(StateKind::kGradNonzero) ? state->grad_nonzero_at_step()
                                                 : state->changed_in_step();
  }

  static Summary Summarize(const ProcessFacts& facts, const ContainRule& rule,
                           const Optimizer& optimizer) {
    Summary summary;
    for (const HeldVariable& held : optimizer.held) {
      const Tri status = StatusOf(facts, rule, held.variable);
      summary.yes += status == Tri::kYes;
      summary.unknown += status == Tri::kUnknown;
      const auto lr =
          facts.optimizer_books().LearningRate(optimizer.object, held.group);
      summary.lr_unknown |= !lr;
      summary.lr_nonzero |= lr && *lr != 0;
      // A rate that was not recorded may be any, so its parameters may be due.
      if (!lr || *lr != 0) AddDue(facts.Variable(held.variable), &summary.due);
    }
    return summary;
  }

  static void AddDue(const VariableState* state, Tri* due) {
    if (*due == Tri::kYes) return;
    const Tri one = state ? state->grad_nonzero_at_step() : Tri::kUnknown;
    // Steps leave out gradients that are not finite on purpose.
    if (one == Tri::kYes && state->grad_finite_at_step() == Tri::kNo) return;
    if (one != Tri::kNo) *due = one;
  }

  // Counts the steps of the optimizer in a row, this one included, at which
  // none of its parameters had a gradient.
  void CountIdle(const ProcessFacts& facts, const Optimizer& optimizer,
                 bool whole) {
    const auto is_idle = [&facts](const HeldVariable& held) {
      const VariableState* state = facts.Variable(held.variable);
      return state && state->grad_nonzero_at_step() == Tri::kNo;
    };
    const bool idle = whole && std::all_of(optimizer.held.begin(),
                                           optimizer.held.end(), is_idle);
    uint32_t& steps = idle_[optimizer.object];
    // A step of which records are missing may have had gradients, and the row
    // begins again.
    steps = idle ? std::min(steps + 1, kIdleSteps) : 0;
  }

  // At the first step all gradients may be there and zero, where what comes
  // behind these parameters (an output layer) begins at zero.
  static bool MayBeginAtZero(const FactSubject& optimizer,
                             const std::vector<HeldVariable>& held) {
    static const Fact* const kHasStepped = FindFact("opt.has_stepped");
    if (kHasStepped->read(optimizer) != FactValue(false)) return false;
    return std::any_of(held.begin(), held.end(), [&](const HeldVariable& one) {
      const VariableState* state = optimizer.facts->Variable(one.variable);
      return state && state->has_grad_at_step() == Tri::kYes;
    });
  }

  // Optimizers that may leave parameters as they are: LBFGS stops where the
  // gradient is small enough, once it has begun; an optimizer of the user may
  // leave out steps (at a loss that is far off), which is believed once it has
  // changed something.
  bool MayStand(const ProcessFacts& facts, const Optimizer& optimizer) const {
    const ObjectInfo* info = facts.definitions().Object(optimizer.object);
    if (info && !absl::StartsWith(info->class_name, "torch.") &&
        moved_.contains(optimizer.object)) {
      return true;
    }
    static const Fact* const kHasStepped = FindFact("opt.has_stepped");
    FactSubject subject;
    subject.facts = &facts;
    subject.optimizer = optimizer.object;
    const auto is_lbfgs = [](const std::string& name) {
      return name == kLbfgs;
    };
    return info &&
           (is_lbfgs(info->class_name) ||
            std::any_of(info->bases.begin(), info->bases.end(), is_lbfgs)) &&
           kHasStepped->read(subject) == FactValue(true);
  }

  // Should some gradient of the step be there? First the excuses that the facts
  // know, then the number of backwards since the last step.
  Tri AwaitsGradient(const ProcessFacts& facts,
                     const Optimizer& optimizer) const {
    // Losses of zero have zero gradients: a margin that is kept everywhere
    // leaves nothing to learn.
    static const Fact* const kLossesAreZero = FindFact("opt.losses_are_zero");
    FactSubject subject;
    subject.facts = &facts;
    subject.optimizer = optimizer.object;
    // Optimizers that work with Jacobians or by evolution need no gradients.
    static const Fact* const kNeedsNone = FindFact("opt.needs_no_gradients");
    for (const Fact* excuse : {kLossesAreZero, kNeedsNone}) {
      if (excuse->read(subject) == FactValue(true)) return Tri::kNo;
    }
    if (MayBeginAtZero(subject, optimizer.held)) return Tri::kNo;
    const auto idle = idle_.find(optimizer.object);
    if (idle != idle_.end() && idle->second == kIdleSteps) return Tri::kYes;
    const auto backwards =
        facts.optimizer_books().BackwardsSince(optimizer.object);
    return backwards ? ToTri(*backwards > 0) : Tri::kUnknown;
  }

  // Could it be otherwise in this step?
  Tri IsDue(const ProcessFacts& facts, const ContainRule& rule,
            const Optimizer& optimizer, const Summary& summary) const {
    if (rule.spec.Is(StateKind::kDataChanged)) {
      if (MayStand(facts, optimizer)) return Tri::kNo;
      // With all rates at 0 nothing is to change. A warm-up may begin so.
      return !summary.lr_unknown && !summary.lr_nonzero ? Tri::kNo
                                                        : summary.due;
    }
    if (rule.spec.Is(StateKind::kGradNonzero)) {
      return AwaitsGradient(facts, optimizer);
    }
    // What is left is kTrainable.
    return ToTri(!HasGradientsByHand(facts, optimizer));
  }

  // No parameter requires a gradient, but the user has computed some and the
  // step uses them.
  static bool HasGradientsByHand(const ProcessFacts& facts,
                                 const Optimizer& optimizer) {
    return std::any_of(
        optimizer.held.begin(), optimizer.held.end(),
        [&](const HeldVariable& held) {
          const VariableState* state = facts.Variable(held.variable);
          return state && state->has_grad_at_step() == Tri::kYes &&
                 state->grad_nonzero_at_step() != Tri::kNo;
        });
  }

  void JudgeSome(const ProcessFacts& facts, const Call& step,
                 const ContainRule& rule, const Optimizer& optimizer) {
    const Summary summary = Summarize(facts, rule, optimizer);
    const bool update = rule.spec.Is(StateKind::kDataChanged);
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (update && summary.yes > 0) moved_.insert(optimizer.object);
    // One parameter of which it is known is enough, whatever was not recorded
    // of others.
    if (summary.yes == 0) {
      const Tri due = IsDue(facts, rule, optimizer, summary);
      if (due == Tri::kNo) return;
      if (summary.unknown > 0 || due == Tri::kUnknown) {
        MarkUnknown(WhyUnrecorded(facts), &verdict);
      } else if (update && !summary.lr_nonzero) {
        MarkUnknown("the learning rate was not recorded", &verdict);
      } else {
        MarkViolated(facts, step, rule, &verdict);
        ExplainSome(facts, rule, optimizer, &verdict.finding);
      }
    }
    sink_->OnVerdict(verdict);
  }

  // Completes "none of the parameters that it holds ...".
  static const char* SeenWords(const ContainRule& rule) {
    if (rule.spec.Is(StateKind::kDataChanged)) return "changed";
    return rule.spec.Is(StateKind::kTrainable)
               ? "requires a gradient"
               : "has a non-zero gradient at the step";
  }

  static void ExplainSome(const ProcessFacts& facts, const ContainRule& rule,
                          const Optimizer& optimizer, Finding* finding) {
    for (const HeldVariable& held : optimizer.held) {
      const VariableInfo* info = facts.definitions().Variable(held.variable);
      if (info) AddOnce(info->FullName(), &finding->variables);
    }
    std::sort(finding->variables.begin(), finding->variables.end());
    finding->seen = "none of the " + std::to_string(optimizer.held.size()) +
                    " parameters that it holds " + SeenWords(rule);
    AddOnce(OrphanWords(facts), &finding->evidence);
    if (!rule.spec.Is(StateKind::kTrainable)) return;
    BlameConstruction(facts, optimizer.object, finding);
  }

  // One parameter of the step; the verdict is kYes where the rule asks for
  // nothing.
  Tri JudgeOne(const ProcessFacts& facts, const ContainRule& rule,
               const Optimizer& optimizer, const HeldVariable& held,
               bool* applied) {
    const auto lr =
        facts.optimizer_books().LearningRate(optimizer.object, held.group);
    // A parameter whose own rate is 0 is not asked to move.
    if (lr && *lr == 0) return Tri::kYes;
    FactSubject subject;
    subject.facts = &facts;
    subject.optimizer = optimizer.object;
    subject.variable = held.variable;
    subject.group = held.group;
    const Tri applies = rule.precondition.Holds(subject);
    if (applies == Tri::kNo) return Tri::kYes;
    *applied = true;
    const Tri status = StatusOf(facts, rule, held.variable);
    // A change keeps the rule, whether or not its condition is known.
    if (status == Tri::kYes) {
      Learn(rule, subject, true);
      return status;
    }
    if (applies == Tri::kUnknown || !lr) return Tri::kUnknown;
    if (status == Tri::kNo) Learn(rule, subject, false);
    return status;
  }

  void Learn(const ContainRule& rule, const FactSubject& subject, bool holds) {
    if (!sink_->wants_examples()) return;
    sink_->OnExample(rule.index, {holds, rule.rule->ReadFacts(subject)});
  }

  // Looks at all parameters of the models of which the optimizer holds some.
  // Frozen parameters are left aside, because they may keep a gradient of an
  // earlier stage.
  void JudgeHeld(const ProcessFacts& facts, const Call& step,
                 const ContainRule& rule, const Optimizer& optimizer) {
    std::vector<std::string> orphans;
    bool any = false;
    for (const auto& [id, state] : facts.variables()) {
      const VariableInfo* info = facts.definitions().Variable(id);
      if (!info || info->kind != VariableKind::kParameter ||
          !state.got_grad() || state.trainable() == Tri::kNo ||
          !optimizer.modules.count(info->root)) {
        continue;
      }
      any = true;
      if (!facts.ownership().IsHeld(id)) orphans.push_back(info->FullName());
    }
    // Nothing got a gradient, so there is nothing to be held: that is for other
    // rules to report.
    if (!any) return;
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (!orphans.empty()) {
      std::sort(orphans.begin(), orphans.end());
      MarkViolated(facts, step, rule, &verdict);
      BlameConstruction(facts, optimizer.object, &verdict.finding);
      verdict.finding.variables = orphans;
      verdict.finding.seen = "no optimizer holds " + ListWords(orphans, 3) +
                             ", which got gradients";
    } else if (facts.optimizer_books().MissedBackwardSince(optimizer.object)) {
      MarkUnknown(facts.not_sampled(), &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  // Held tensors that are in no module have the optimizer as their root: the
  // model may have replaced its parameters behind the optimizer.
  void JudgeCurrent(const ProcessFacts& facts, const Call& step,
                    const ContainRule& rule, const Optimizer& optimizer) {
    std::vector<std::string> replaced;
    bool unknown = false;
    for (const HeldVariable& held : optimizer.held) {
      const VariableInfo* info = facts.definitions().Variable(held.variable);
      if (!info || info->root != optimizer.object) continue;
      const Tri status = StatusOfGradient(facts, held.variable);
      // A held tensor outside all modules has a gradient, so the user works
      // with copies and gives them gradients. Gradients of other copies may be
      // zero.
      if (status == Tri::kYes) {
        sink_->OnVerdict(NewVerdict(facts, rule, optimizer.object));
        return;
      }
      if (status == Tri::kNo) replaced.push_back(info->FullName());
      unknown |= status == Tri::kUnknown;
    }
    // Both halves are needed: a held tensor that no model has may be the user's
    // own, but not if another one takes the gradient that it should have.
    const std::string orphans = replaced.empty() ? "" : OrphanWords(facts);
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (!replaced.empty() && !orphans.empty()) {
      MarkViolated(facts, step, rule, &verdict);
      verdict.finding.variables = replaced;
      verdict.finding.seen = std::to_string(replaced.size()) +
                             " of the parameters that it holds are in no "
                             "model and have no gradient";
      verdict.finding.evidence.push_back(orphans);
      BlameConstruction(facts, optimizer.object, &verdict.finding);
    } else if (unknown ||
               facts.optimizer_books().MissedBackwardSince(optimizer.object)) {
      MarkUnknown(WhyUnrecorded(facts), &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  static Tri StatusOfGradient(const ProcessFacts& facts, uint32_t variable) {
    const VariableState* state = facts.Variable(variable);
    return state ? state->grad_nonzero_at_step() : Tri::kUnknown;
  }

  void JudgeEvery(const ProcessFacts& facts, const Call& step,
                  const ContainRule& rule, const Optimizer& optimizer) {
    std::vector<std::string> still;
    bool unknown = false;
    bool applied = false;
    for (const HeldVariable& held : optimizer.held) {
      const Tri status = JudgeOne(facts, rule, optimizer, held, &applied);
      unknown |= status == Tri::kUnknown;
      const VariableInfo* info = facts.definitions().Variable(held.variable);
      if (status == Tri::kNo && info) still.push_back(info->FullName());
    }
    // The precondition holds for none of them, so the step is not a window.
    if (!applied) return;
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    if (!still.empty()) {
      std::sort(still.begin(), still.end());
      MarkViolated(facts, step, rule, &verdict);
      verdict.finding.variables = still;
      verdict.finding.seen = std::to_string(still.size()) +
                             " did not change: " + ListWords(still, 3);
    } else if (unknown) {
      MarkUnknown(WhyUnrecorded(facts), &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  std::map<uint32_t, OpenStep> open_;  // by optimizer
  std::map<uint32_t, uint32_t> idle_;  // steps in a row, by optimizer
  std::set<uint32_t> moved_;           // optimizers that have changed something
};

}  // namespace

const Relation* ContainUpdates() {
  static const auto* const kForm = new ContainForm<UpdatesAtSteps>(
      "EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
