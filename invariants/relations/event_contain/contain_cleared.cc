#include "invariants/relations/event_contain/contain_cleared.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

// A clearing call that has not ended. What the optimizer holds is compared with
// these lists at its end.
struct OpenClear {
  Call call;
  uint64_t gaps = 0;
  std::set<uint32_t> recorded;  // variables
  std::set<uint32_t> left;      // that still have a gradient
  bool unreadable = false;
  bool had_gradient = false;  // some of them, before

  void Fields(Archive& archive) {
    archive(call, gaps, recorded, left, unreadable, had_gradient);
  }
};

class ClearingCalls : public ProcessObserver {
 public:
  explicit ClearingCalls(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (index_.Find(call).windows.empty() || !OpensWindow(call)) return;
    const Optimizer* optimizer = facts.ownership().Find(call.object);
    if (!optimizer) return;
    // One a thread: only outermost clears open a window.
    OpenClear open{call, facts.gaps(), {}, {}, false, false};
    for (const HeldVariable& held : optimizer->held) {
      // Where there is nothing to clear, a call that clears nothing shows
      // nothing.
      open.had_gradient |= nonzero_.count(held.variable) > 0;
    }
    open_[call.ring] = std::move(open);
  }

  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    // States of every point count: the last record of a variable says whether a
    // clear has anything to do.
    const bool cleared = event.Has(kGradIsNone) || event.Has(kGradIsZero);
    if (cleared) {
      nonzero_.erase(event.variable_id);
    } else if (event.Has(kHasGrad)) {
      nonzero_.insert(event.variable_id);
    }
    if (event.point != StatePoint::kGradClear || !event.call) return;
    const auto found = open_.find(event.call->ring);
    if (found == open_.end()) return;
    OpenClear& open = found->second;
    if (event.Has(kUnreadable) || !(cleared || event.Has(kHasGrad))) {
      open.unreadable = true;
      return;
    }
    // What the optimizer holds is asked at the end: records of other variables
    // in the call do no harm.
    open.recorded.insert(event.variable_id);
    if (!cleared) open.left.insert(event.variable_id);
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const auto found = open_.find(call.ring);
    if (found == open_.end() || found->second.call.number != call.number) {
      return;
    }
    const OpenClear open = std::move(found->second);
    open_.erase(found);
    if (outcome == CallOutcome::kRaised || !open.had_gradient) return;
    for (const ContainRule* rule : index_.Find(call).windows) {
      Judge(facts, open, outcome, *rule);
    }
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const auto& [ring, open] : open_) {
      for (const ContainRule* rule : index_.Find(open.call).windows) {
        sink_->OnVerdict(CutOff(facts, *rule, open.call.object, end));
      }
    }
    open_.clear();
  }

  void Fields(Archive& archive) override { archive(open_, nonzero_); }

 private:
  void Judge(const ProcessFacts& facts, const OpenClear& open,
             CallOutcome outcome, const ContainRule& rule) {
    const Optimizer* optimizer = facts.ownership().Find(open.call.object);
    if (!optimizer) return;
    std::vector<std::string> left;
    bool missed = open.unreadable;
    for (const HeldVariable& held : optimizer->held) {
      // A held parameter without a record may have kept its gradient.
      missed |= open.recorded.count(held.variable) == 0;
      const VariableInfo* info = facts.definitions().Variable(held.variable);
      if (info && open.left.count(held.variable)) {
        left.push_back(info->FullName());
      }
    }
    Verdict verdict = NewVerdict(facts, rule, open.call.object);
    // A gradient that was seen to be left decides, whatever else was missed.
    if (!left.empty()) {
      std::sort(left.begin(), left.end());
      MarkViolated(facts, open.call, rule, &verdict);
      verdict.finding.variables = left;
      verdict.finding.seen = std::to_string(left.size()) +
                             " still have a gradient: " + ListWords(left, 3);
    } else if (open.gaps != facts.gaps()) {
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (outcome == CallOutcome::kUnknown) {
      MarkUnknown("the end of a call is missing", &verdict);
    } else if (missed) {
      MarkUnknown(facts.recorded().whole()
                      ? "not every gradient was recorded when it was cleared"
                      : facts.not_sampled(),
                  &verdict);
    }
    sink_->OnVerdict(verdict);
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  std::map<uint32_t, OpenClear> open_;  // by ring
  std::set<uint32_t> nonzero_;          // variables with such a gradient
};

}  // namespace

const Relation* ContainCleared() {
  static const auto* const kForm = new ContainForm<ClearingCalls>(
      "EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
