#include "invariants/relations/event_contain/contain_calls.h"

#include <map>
#include <variant>
#include <vector>

#include "invariants/facts/variable_state.h"
#include "invariants/relations/event_contain/contain_rules.h"
#include "invariants/rules/plain_value.h"
#include "invariants/trace/call_values.h"

namespace traincheck {

namespace {

// One rule in one open window.
struct Watch {
  const ContainRule* rule = nullptr;
  size_t rule_index = 0;
  Tri applies = Tri::kYes;
  bool happened = false;
  // A call may have been the event, on an object that is not known; or a
  // gradient may have changed.
  bool unsure = false;
  std::vector<FactValue> facts;  // for the learner, which is never saved

  void Fields(Archive& archive) {
    archive(rule_index, applies, happened, unsure);
  }
};

// A call that is the window of some rules. Its precondition has been read; the
// rest is decided when the call ends.
struct OpenWindow {
  Call call;
  uint64_t gaps = 0;
  RecordedSince recorded;
  // Was some state recorded at the end of the backward?
  bool saw_gradients = false;
  std::vector<Watch> watches;

  void Fields(Archive& archive) {
    archive(call, gaps, recorded, saw_gradients, watches);
  }
};

class CallWindows : public ProcessObserver {
 public:
  explicit CallWindows(const ContainJudged* judged)
      : sink_(judged->sink), index_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) index_.Forget(id);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // First as an event, then as a window: a call does not contain itself.
    const FunctionIndex::Concerned& concerned = index_.Find(call);
    // The engine of autograd runs a backward on threads of its own: what it
    // calls there lies in the window of the thread that waits.
    if (call.parent_number != 0) foreign_[call.ring] = call;
    if (!concerned.events.empty()) {
      ForEachEnclosing(call, [&](OpenWindow* window) {
        Happens(facts, call, concerned.events, window);
      });
    }
    if (!concerned.windows.empty() && OpensWindow(call)) {
      Open(facts, call, concerned.windows);
    }
  }

  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    if (event.point != StatePoint::kBackwardEnd || !event.call) return;
    // The facts have seen the event before, so the variable is there.
    const Tri written = facts.Variable(event.variable_id)->grad_written();
    ForEachEnclosing(*event.call, [&](OpenWindow* window) {
      if (!HasCategory(window->call, CallCategory::kBackward)) return;
      window->saw_gradients = true;
      for (Watch& watch : window->watches) {
        if (watch.rule->spec.call()) continue;
        watch.happened |= written == Tri::kYes;
        watch.unsure |= written == Tri::kUnknown;
      }
    });
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    if (call.parent_number != 0) foreign_.erase(call.ring);
    std::vector<OpenWindow>& open = open_[call.ring];
    // Only windows are on this list.
    if (open.empty() || open.back().call.number != call.number) return;
    const OpenWindow window = std::move(open.back());
    open.pop_back();
    // An exception ends the call early: what it would have contained is not
    // known, nor expected.
    if (outcome == CallOutcome::kRaised) return;
    for (const Watch& watch : window.watches) {
      Judge(facts, window, watch, outcome);
    }
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    for (const auto& [ring, windows] : open_) {
      for (const OpenWindow& window : windows) {
        for (const Watch& watch : window.watches) {
          sink_->OnVerdict(CutOff(facts, *watch.rule, /*object=*/0, end));
        }
      }
    }
    open_.clear();
  }

  void Fields(Archive& archive) override {
    archive(open_, foreign_);
    for (auto& [ring, windows] : open_) {
      for (OpenWindow& window : windows) {
        for (Watch& watch : window.watches) {
          // Pointers are not saved: the index of a rule is the same in each
          // check of a set.
          watch.rule = index_.Rule(watch.rule_index);
          if (!watch.rule) archive.Fail("a window has an unknown rule");
        }
      }
    }
    if (!archive.ok()) open_.clear();
  }

 private:
  // The windows on the call's own thread and, where its thread was started or
  // is run by another call, those around that one.
  template <typename Visit>
  void ForEachEnclosing(const Call& call, Visit visit) {
    for (OpenWindow& window : open_[call.ring]) visit(&window);
    const auto foreign = foreign_.find(call.ring);
    if (foreign == foreign_.end()) return;
    for (OpenWindow& window : open_[foreign->second.parent_ring]) {
      // Numbers of a ring grow: windows with higher ones were opened behind the
      // parent and are beside the call, not around it.
      if (window.call.number <= foreign->second.parent_number) visit(&window);
    }
  }

  void Open(const ProcessFacts& facts, const Call& call,
            const std::vector<const ContainRule*>& rules) {
    OpenWindow window;
    window.call = call;
    window.gaps = facts.gaps();
    window.recorded = facts.recorded().now();
    FactSubject subject;
    subject.facts = &facts;
    subject.call = &call;
    for (const ContainRule* rule : rules) {
      Watch watch;
      watch.rule = rule;
      watch.rule_index = rule->index;
      watch.applies = rule->precondition.Holds(subject);
      // A precondition is read when the window opens, so that what happens
      // within cannot decide it.
      if (watch.applies == Tri::kNo) continue;
      if (sink_->wants_examples()) watch.facts = rule->rule->ReadFacts(subject);
      window.watches.push_back(std::move(watch));
    }
    if (!window.watches.empty()) open_[call.ring].push_back(std::move(window));
  }

  static void Happens(const ProcessFacts& facts, const Call& call,
                      const std::vector<const ContainRule*>& rules,
                      OpenWindow* window) {
    for (Watch& watch : window->watches) {
      const CallInWindow* event = watch.rule->spec.call();
      // Once is enough, and what comes later need not be decoded.
      if (watch.happened || !event) continue;
      for (const ContainRule* rule : rules) {
        if (rule != watch.rule) continue;
        const Tri bound = IsBound(facts, call, *window, event->binding);
        // The argument is looked at only where the object fits: decoding costs
        // more.
        const Tri fits = bound == Tri::kYes
                             ? Fits(facts, call, *window, event->with)
                             : bound;
        watch.happened = fits == Tri::kYes;
        watch.unsure |= fits == Tri::kUnknown;
      }
    }
  }

  // Is its argument what it must be?
  static Tri Fits(const ProcessFacts& facts, const Call& call,
                  const OpenWindow& window, const CallWith& with) {
    if (with.argument.empty()) return Tri::kYes;
    const ToldArguments told = ArgumentsOf(call, facts.definitions());
    const CallValue* argument = told.Find(with.argument);
    if (!argument) return Tri::kUnknown;
    const auto value = PlainValue(*argument);
    // A tensor or an object is told, and is another value than what a rule can
    // name.
    if (!value) return Tri::kNo;
    if (!with.fact) return ToTri(*value == with.value);
    FactSubject subject;
    subject.facts = &facts;
    subject.call = &window.call;
    const FactValue wanted = with.fact->read(subject);
    if (!IsKnown(wanted)) return Tri::kUnknown;
    const auto* flag = std::get_if<bool>(&wanted);
    return ToTri(flag && value->is_boolean() && value->get<bool>() == *flag);
  }

  static Tri IsBound(const ProcessFacts& facts, const Call& call,
                     const OpenWindow& window, Binding binding) {
    if (binding == Binding::kAny) return Tri::kYes;
    // An object without a number may be the one that the rule asks for.
    if (call.object == 0 || window.call.object == 0) return Tri::kUnknown;
    if (binding == Binding::kSelf) {
      return ToTri(call.object == window.call.object);
    }
    // What is left is kWrapped: the other bindings are of spans.
    const ObjectInfo* wrapper = facts.definitions().Object(window.call.object);
    if (!wrapper || wrapper->wrapped == 0) return Tri::kUnknown;
    return ToTri(call.object == wrapper->wrapped);
  }

  // Was whatever the rule waits for recorded, all through the window?
  bool IsSampled(const ProcessFacts& facts, const OpenWindow& window,
                 const ContainRule& rule) {
    const Call& call = window.call;
    const CallInWindow* event = rule.spec.call();
    return facts.recorded().WholeSince(window.recorded, call.ring,
                                       call.number) ||
           (event && !recorded_.IsBeyondSkeleton(facts, event->function));
  }

  void Judge(const ProcessFacts& facts, const OpenWindow& window,
             const Watch& watch, CallOutcome outcome) {
    const ContainRule& rule = *watch.rule;
    const CallInWindow* event = rule.spec.call();
    const bool never = event && event->never;
    // A rule on gradients has no window where no state was recorded: a backward
    // inside a backward, or a process of which no model is known yet.
    const bool sampled = IsSampled(facts, window, rule);
    if (!event && !window.saw_gradients && sampled) return;
    Verdict verdict = NewVerdict(facts, rule, /*object=*/0);
    if (watch.applies == Tri::kUnknown) {
      MarkUnknown("a fact of its precondition is not known", &verdict);
    } else if (watch.happened && never) {
      MarkViolated(facts, window.call, rule, &verdict);
      verdict.finding.apis.push_back(event->function.text);
      verdict.finding.seen = event->function.Describe() + " was called in it";
      // What was seen stands. Only that something did not happen needs whole
      // records.
    } else if (!watch.happened) {
      if (window.gaps != facts.gaps()) {
        MarkUnknown(facts.gap_reason(), &verdict);
      } else if (outcome == CallOutcome::kUnknown) {
        MarkUnknown("the end of a call is missing", &verdict);
      } else if (!sampled) {
        MarkUnknown(facts.not_sampled(), &verdict);
      } else if (event && !recorded_.IsRecorded(facts, event->function,
                                                window.recorded)) {
        MarkUnknown(NotRecordedWords(facts, event->function), &verdict);
      } else if (watch.unsure) {
        MarkUnknown(WhyUnsure(event), &verdict);
      } else if (!never) {
        MarkViolated(facts, window.call, rule, &verdict);
        Explain(event, &verdict.finding);
      }
    }
    if (sink_->wants_examples() && verdict.outcome != Outcome::kUnknown) {
      sink_->OnExample(rule.index, {watch.happened != never, watch.facts});
    }
    sink_->OnVerdict(verdict);
  }

  // `event` is null where the event is a change of gradients.
  static const char* WhyUnsure(const CallInWindow* event) {
    if (!event) return "not every gradient was recorded";
    return event->with.argument.empty()
               ? "the object of a call is not known"
               : "the argument of a call was not recorded";
  }

  static void Explain(const CallInWindow* event, Finding* finding) {
    if (!event) {
      finding->seen = "no gradient of any parameter changed";
      return;
    }
    const std::string function = event->function.Describe();
    finding->apis.push_back(event->function.text);
    finding->seen = event->with.argument.empty()
                        ? function + " was not called in it"
                        : "no call of " + function + " in it has such a " +
                              event->with.argument;
  }

  RuleSink* const sink_;
  FunctionIndex index_;
  RecordedCalls recorded_;
  std::map<uint32_t, std::vector<OpenWindow>> open_;  // by ring
  // The open call of a ring whose parent is on another.
  std::map<uint32_t, Call> foreign_;
};

}  // namespace

const Relation* ContainCalls() {
  static const auto* const kForm =
      new ContainForm<CallWindows>("EventContain", /*make_generator=*/nullptr);
  return kForm;
}

}  // namespace traincheck
