#include "invariants/relations/event_contain/contain_spans.h"

#include <map>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/variable_state.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

struct Span {
  bool first = true;
  uint64_t gaps = 0;
  RecordedSince recorded;
  uint64_t begin = 0;  // number of the last event before it
  Call step;           // the one before it; no function: there was none

  void Fields(Archive& archive) { archive(first, gaps, recorded, begin, step); }
};

// When events happened: for each rule, the last one on each object. Events are
// kept with their objects, and an object is only matched with an optimizer when
// a span ends, because the records may say what the optimizer holds after the
// first call of its model.
class EventLog {
 public:
  void Add(size_t rule, uint32_t object) { last_[rule][object] = ++now_; }
  uint64_t now() const { return now_; }
  // Objects with an event since; 0: objects that are not known.
  std::vector<uint32_t> Since(size_t rule, uint64_t begin) const {
    std::vector<uint32_t> objects;
    const auto found = last_.find(rule);
    if (found == last_.end()) return objects;
    for (const auto& [object, when] : found->second) {
      if (when > begin) objects.push_back(object);
    }
    return objects;
  }

  void Fields(Archive& archive) { archive(now_, last_); }

 private:
  uint64_t now_ = 0;
  absl::flat_hash_map<size_t, std::map<uint32_t, uint64_t>> last_;
};

// "a.b.Class" of "a.b.Class.forward".
std::string ClassOf(const std::string& method) {
  const size_t dot = method.rfind('.');
  return dot == std::string::npos ? method : method.substr(0, dot);
}

// Spans with another event are of other forms.
const CallInWindow& EventOf(const ContainRule& rule) {
  return *rule.spec.call();
}

class SpanWindows : public ProcessObserver {
 public:
  explicit SpanWindows(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
    // An optimizer is defined when it is constructed.
    if (type != RecordType::kObjectDef || spans_.count(id)) return;
    const ObjectInfo* object = facts.definitions().Object(id);
    if (object && object->kind == ObjectKind::kOptimizer) {
      spans_[id] = {true, facts.gaps(), facts.recorded().now(), log_.now(), {}};
    }
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    for (const ContainRule* rule : index_.Find(call).events) {
      log_.Add(rule->index, call.object);
    }
    // Kept for what people are shown: which call went around the wrapper
    // (ExplainWrapper).
    if (IsTrainingRootForward(call)) forwards_[call.object] = call;
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (!IsOptimizerStep(call) || outcome == CallOutcome::kRaised) return;
    // Without its construction or a step before, nothing says when the span
    // began.
    const auto found = spans_.find(call.object);
    if (found != spans_.end()) {
      for (const ContainRule* rule : index_.Find(call).windows) {
        Judge(facts, call, *rule, found->second);
      }
    }
    // The next span begins behind the step, whose own calls (a closure's
    // backward) belong to the one that it ends.
    spans_[call.object] = {false, facts.gaps(), facts.recorded().now(),
                           log_.now(), call};
  }

  // The spans that are open when the process ends. After a clean exit they are
  // no windows: no step was going to end them.
  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    if (end == ProcessEnd::kClean) return;
    for (const auto& [optimizer, span] : spans_) {
      // The function of its last step names the rules: an optimizer that never
      // stepped has none.
      for (const ContainRule* rule : index_.Find(span.step).windows) {
        if (!IsDue(facts, span.step, *rule, span)) continue;
        sink_->OnVerdict(CutOff(facts, *rule, optimizer, end));
      }
    }
    spans_.clear();
  }

  void Fields(Archive& archive) override { archive(spans_, log_, forwards_); }

 private:
  Tri Happened(const ProcessFacts& facts, const Call& step,
               const ContainRule& rule, const Span& span) const {
    // Gradients may be cleared by hand (p.grad = None), which is not a call.
    if (IsClear(EventOf(rule).function) &&
        facts.optimizer_books().ClearedSince(step.object) == Tri::kYes) {
      return Tri::kYes;
    }
    const Optimizer* optimizer = facts.ownership().Find(step.object);
    Tri result = Tri::kNo;
    for (uint32_t object : log_.Since(rule.index, span.begin)) {
      const Tri one =
          IsBoundToOptimizer(facts, optimizer, object, EventOf(rule).binding);
      if (one == Tri::kYes) return one;
      if (one == Tri::kUnknown) result = one;
    }
    return result;
  }

  // Was whatever the rule waits for recorded, all through the span?
  bool IsSampled(const ProcessFacts& facts, const Call& step,
                 const ContainRule& rule, const Span& span) {
    // Calls that clear are recorded in every step; what is done by hand is not.
    if (IsClear(EventOf(rule).function)) {
      return facts.optimizer_books().ClearedSince(step.object) != Tri::kUnknown;
    }
    return facts.recorded().WholeSince(span.recorded, 0, 0) ||
           !recorded_.IsBeyondSkeleton(facts, EventOf(rule).function);
  }

  // Does the rule ask this span for its event? The conditions are those of the
  // header: they leave aside what a healthy program need not do.
  bool IsDue(const ProcessFacts& facts, const Call& step,
             const ContainRule& rule, const Span& span) const {
    if (IsClear(EventOf(rule).function) && span.first) return false;
    const Optimizer* optimizer = facts.ownership().Find(step.object);
    if (EventOf(rule).binding == Binding::kAny) return true;
    if (!optimizer) return false;
    if (IsClear(EventOf(rule).function)) return true;
    // An optimizer whose tensors are in no module has no model that could be
    // called.
    if (EventOf(rule).binding == Binding::kHeld)
      return !optimizer->modules.empty();
    // What is left is kWrapper: the parameters must have a wrapper of the class
    // whose call is asked for.
    const std::string wanted = ClassOf(EventOf(rule).function.text);
    for (uint32_t wrapper : optimizer->wrappers) {
      if (facts.ownership().IsInstance(wrapper, wanted)) return true;
    }
    return false;
  }

  // The event did not happen: does that matter?
  static Tri IsMissed(const ProcessFacts& facts, const Call& step,
                      const ContainRule& rule) {
    const Optimizer* optimizer = facts.ownership().Find(step.object);
    if (!optimizer) return Tri::kYes;
    const FunctionMatch& function = EventOf(rule).function;
    if (IsBackward(function)) return ChangesAny(facts, *optimizer);
    return IsClear(function) ? GotAnyGradient(facts, *optimizer) : Tri::kYes;
  }

  static Tri ChangesAny(const ProcessFacts& facts, const Optimizer& optimizer) {
    Tri any = Tri::kNo;
    for (const HeldVariable& held : optimizer.held) {
      const VariableState* state = facts.Variable(held.variable);
      const Tri one = state ? state->changed_in_step() : Tri::kUnknown;
      if (one == Tri::kYes) return one;
      if (one == Tri::kUnknown) any = one;
    }
    return any;
  }

  // Only a backward that gave gradients makes a missing clear an error:
  // otherwise there is nothing to add up.
  static Tri GotAnyGradient(const ProcessFacts& facts,
                            const Optimizer& optimizer) {
    for (const HeldVariable& held : optimizer.held) {
      const VariableState* state = facts.Variable(held.variable);
      if (state && state->got_grad()) return Tri::kYes;
    }
    const bool missed =
        facts.optimizer_books().MissedBackwardSince(optimizer.object);
    return missed ? Tri::kUnknown : Tri::kNo;
  }

  void Judge(const ProcessFacts& facts, const Call& step,
             const ContainRule& rule, const Span& span) {
    if (!IsDue(facts, step, rule, span)) return;
    FactSubject subject;
    subject.facts = &facts;
    subject.optimizer = step.object;
    const Tri applies = rule.precondition.Holds(subject);
    if (applies == Tri::kNo) return;
    const Tri happens = Happened(facts, step, rule, span);
    const bool happened = happens == Tri::kYes;
    // Looks at each held parameter, so it is asked only where the event is
    // missing.
    const Tri missed = happened || EventOf(rule).never
                           ? Tri::kYes
                           : IsMissed(facts, step, rule);
    if (missed == Tri::kNo) return;
    Verdict verdict = NewVerdict(facts, rule, step.object);
    if (applies == Tri::kUnknown) {
      MarkUnknown("a fact of its precondition is not known", &verdict);
    } else if (span.gaps != facts.gaps()) {
      // What happened may have been in a step of which no record is left.
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (happened && EventOf(rule).never) {
      MarkViolated(facts, step, rule, &verdict);
      verdict.finding.seen = EventOf(rule).function.Describe() +
                             " was called since the optimizer's last step";
    } else if (missed == Tri::kUnknown ||
               (!happened && !IsSampled(facts, step, rule, span))) {
      MarkUnknown(facts.not_sampled(), &verdict);
    } else if (!happened && !recorded_.IsRecorded(facts, EventOf(rule).function,
                                                  span.recorded)) {
      MarkUnknown(NotRecordedWords(facts, EventOf(rule).function), &verdict);
    } else if (!happened && happens == Tri::kUnknown) {
      MarkUnknown("the object of a call is not known", &verdict);
    } else if (!happened && !EventOf(rule).never) {
      MarkViolated(facts, step, rule, &verdict);
      Explain(facts, step, rule, span, &verdict.finding);
    }
    if (sink_->wants_examples() && verdict.outcome != Outcome::kUnknown) {
      sink_->OnExample(rule.index, {happened != EventOf(rule).never,
                                    rule.rule->ReadFacts(subject)});
    }
    sink_->OnVerdict(verdict);
  }

  void Explain(const ProcessFacts& facts, const Call& step,
               const ContainRule& rule, const Span& span,
               Finding* finding) const {
    const std::string event = EventOf(rule).function.Describe();
    finding->apis.insert(finding->apis.begin(), EventOf(rule).function.text);
    finding->seen = event + " was not called between " +
                    (span.first ? "the optimizer's construction"
                                : "the optimizer's last step") +
                    " and the end of this one";
    if (EventOf(rule).binding == Binding::kWrapper) {
      ExplainWrapper(facts, step, finding);
    }
  }

  // The call that went around the wrapper says more than the step does.
  void ExplainWrapper(const ProcessFacts& facts, const Call& step,
                      Finding* finding) const {
    const Optimizer* optimizer = facts.ownership().Find(step.object);
    for (uint32_t module : optimizer->modules) {
      const auto forward = forwards_.find(module);
      if (forward == forwards_.end() || optimizer->wrappers.count(module)) {
        continue;
      }
      const uint32_t site = forward->second.site;
      finding->evidence.push_back(
          facts.FunctionName(forward->second.function_id) +
          " was called directly at " + facts.definitions().Site(site));
      PutSiteFirst(facts, site, finding);
      return;
    }
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  RecordedCalls recorded_;
  std::map<uint32_t, Span> spans_;  // by optimizer
  EventLog log_;
  std::map<uint32_t, Call> forwards_;  // the last of training, by root module
};

}  // namespace

Tri IsBoundToOptimizer(const ProcessFacts& facts, const Optimizer* optimizer,
                       uint32_t object, Binding binding) {
  if (binding == Binding::kAny) return Tri::kYes;
  if (object == 0 || !optimizer) return Tri::kUnknown;
  if (binding == Binding::kWrapper) {
    return ToTri(optimizer->wrappers.count(object) != 0);
  }
  // The optimizer's own methods are calls on what it holds (zero_grad).
  if (object == optimizer->object) return Tri::kYes;
  if (optimizer->modules.count(object)) return Tri::kYes;
  // A part of such a model counts too: users call encoder and head apart.
  const ObjectInfo* info = facts.definitions().Object(object);
  return ToTri(info && info->root != 0 &&
               optimizer->modules.count(info->root) != 0);
}

const Relation* ContainSpans() {
  static const auto* const kForm =
      new ContainForm<SpanWindows>("EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
