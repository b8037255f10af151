#include "invariants/relations/event_contain/contain_facts.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "invariants/facts/fact_value.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// What the variables of one step say together.
struct Judgement {
  bool applied = false;
  bool fact_unknown = false;
  bool precondition_unknown = false;
  uint32_t trials = 0;
  std::vector<std::string> others;  // names of those with another value
};

const FactInWindow& EventOf(const ContainRule& rule) {
  return std::get<FactInWindow>(rule.spec.event);
}

class FactsAtSteps : public ProcessObserver {
 public:
  explicit FactsAtSteps(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (IsOptimizerStep(call)) open_[call.object] = call;
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (!IsOptimizerStep(call)) return;
    open_.erase(call.object);
    // A step that raised may have done a part of its work.
    if (outcome == CallOutcome::kRaised) return;
    const Optimizer* optimizer = facts.ownership().Find(call.object);
    for (const ContainRule* rule : index_.Find(call).windows) {
      // Observers see the end of the step before the trackers close it
      // (ProcessFacts::OnCallEnd), so the facts are those of this step.
      if (outcome == CallOutcome::kReturned && optimizer) {
        Judge(facts, call, *rule, *optimizer);
        continue;
      }
      Verdict verdict = NewVerdict(facts, *rule, call.object);
      MarkUnknown(optimizer ? "the end of a step is missing"
                            : "what the optimizer holds is not known",
                  &verdict);
      sink_->OnVerdict(verdict);
    }
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const auto& [optimizer, step] : open_) {
      for (const ContainRule* rule : index_.Find(step).windows) {
        sink_->OnVerdict(CutOff(facts, *rule, optimizer, end));
      }
    }
    open_.clear();
  }

  void Fields(Archive& archive) override { archive(open_, tried_); }

 private:
  // Optimizers hold no buffers: those of the models whose parameters it holds
  // are its own. Buffers are in no parameter group.
  static std::vector<HeldVariable> VariablesOf(const ProcessFacts& facts,
                                               const ContainRule& rule,
                                               const Optimizer& optimizer) {
    if (!EventOf(rule).of_buffers) return optimizer.held;
    std::vector<HeldVariable> buffers;
    for (const auto& [id, info] : facts.definitions().variables()) {
      if (info.kind == VariableKind::kBuffer &&
          optimizer.modules.count(info.root)) {
        buffers.push_back({id, 0});
      }
    }
    return buffers;
  }

  void JudgeOne(const ContainRule& rule, const FactSubject& subject,
                Judgement* judgement) {
    const WantedFact& wanted = EventOf(rule).wanted;
    // A variable for which the fact means nothing is left aside, and does not
    // make the step unknown.
    if (!wanted.fact->Applies(subject)) return;
    const Tri applies = rule.precondition.Holds(subject);
    if (applies == Tri::kNo) return;
    // Also where the precondition is unknown: then the window is unknown, and
    // not silent.
    judgement->applied = true;
    const FactValue value = wanted.fact->read(subject);
    judgement->fact_unknown |= !IsKnown(value);
    judgement->precondition_unknown |= applies == Tri::kUnknown;
    if (!IsKnown(value) || applies == Tri::kUnknown) return;
    const bool holds = value == wanted.value;
    // A variable is one trial a run: that its fact stays so in each step is no
    // further evidence.
    judgement->trials += tried_.insert({rule.index, subject.variable}).second;
    if (sink_->wants_examples()) {
      sink_->OnExample(rule.index, {holds, rule.rule->ReadFacts(subject)});
    }
    const VariableInfo* info =
        subject.facts->definitions().Variable(subject.variable);
    if (!holds && info) judgement->others.push_back(info->FullName());
  }

  void Judge(const ProcessFacts& facts, const Call& step,
             const ContainRule& rule, const Optimizer& optimizer) {
    Judgement judgement;
    FactSubject subject;
    subject.facts = &facts;
    subject.optimizer = optimizer.object;
    for (const HeldVariable& variable : VariablesOf(facts, rule, optimizer)) {
      subject.variable = variable.variable;
      subject.group = variable.group;
      JudgeOne(rule, subject, &judgement);
    }
    // The rule concerns none of the variables: the step is not a window.
    if (!judgement.applied) return;
    Verdict verdict = NewVerdict(facts, rule, optimizer.object);
    verdict.varied = judgement.trials > 0;
    verdict.trials = judgement.trials;
    // One variable that is known to differ decides, whatever is unknown of
    // others.
    if (!judgement.others.empty()) {
      MarkViolated(facts, step, rule, &verdict);
      Explain(rule, std::move(judgement.others), &verdict.finding);
    } else if (judgement.fact_unknown) {
      MarkUnknown(UnknownWords(*EventOf(rule).wanted.fact, facts), &verdict);
    } else if (judgement.precondition_unknown) {
      MarkUnknown("a fact of its precondition is not known", &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  static void Explain(const ContainRule& rule, std::vector<std::string> others,
                      Finding* finding) {
    std::sort(others.begin(), others.end());
    // The other value of a boolean fact has a text of its own. Any other fact
    // can only be denied.
    const WantedFact& wanted = EventOf(rule).wanted;
    const bool* truth = std::get_if<bool>(&wanted.value);
    const std::string seen =
        truth ? Describe(*wanted.fact, FactValue(!*truth))
              : "not: " + Describe(*wanted.fact, wanted.value);
    finding->seen = ListWords(others, 3) + ": " + seen;
    finding->variables = std::move(others);
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  std::map<uint32_t, Call> open_;                // by optimizer
  std::set<std::pair<size_t, uint32_t>> tried_;  // rule, variable
};

}  // namespace

const Relation* ContainFacts() {
  static const auto* const kForm =
      new ContainForm<FactsAtSteps>("EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
