#include "invariants/relations/call_count/call_count.h"

#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/btree_map.h"
#include "invariants/relations/call_count/count_generator.h"
#include "invariants/relations/call_count/count_spec.h"
#include "invariants/rules/functions_in_windows.h"
#include "invariants/rules/recorded_calls.h"
#include "invariants/rules/rules_of_functions.h"
#include "invariants/rules/step_windows.h"
#include "invariants/rules/verdicts.h"

namespace traincheck {

namespace {

// What was counted for one rule in one window.
struct Counted {
  uint64_t calls = 0;
  uint32_t function = 0;  // the last call's
  uint32_t site = 0;

  void Add(const Call& call) {
    ++calls;
    function = call.function_id;
    site = call.site;
  }
  void Fields(Archive& archive) { archive(calls, function, site); }
};
// By place of the rule in its list.
using Counts = absl::btree_map<size_t, Counted>;

// One call whose inside is counted.
struct CountedCall {
  Call call;
  uint64_t gaps = 0;
  RecordedSince recorded;
  Counts counts;

  void Fields(Archive& archive) { archive(call, gaps, recorded, counts); }
};

// A pass over the training data, as the process's clock counts them.
struct EpochWindow {
  std::optional<uint64_t> epoch;
  bool whole = false;  // it began in order, and is not the first
  uint64_t gaps = 0;
  RecordedSince recorded;
  std::optional<uint64_t> step = 0;

  void Fields(Archive& archive) { archive(epoch, whole, gaps, recorded, step); }
};

using Judged = JudgedRules<CountRule>;

class CountsOfProcess : public ProcessObserver {
 public:
  explicit CountsOfProcess(const Judged* judged)
      : judged_(judged), known_(&judged->rules) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    known_.OnDefinition(type, id);
  }

  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    Advance(facts);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // The window is closed first: a call that begins a step or a pass counts
    // for the new one.
    Advance(facts);
    const auto& concerned = known_.Of(call);
    for (const size_t place : concerned.inner) Count(call, place);
    if (concerned.windows.empty()) return;
    CountedCall open{call, facts.gaps(), facts.recorded().now(), {}};
    // Each rule has an entry from the start, so that a window without any call
    // is judged with the count 0.
    for (const size_t place : concerned.windows) open.counts[place];
    open_[call.ring].push_back(std::move(open));
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    std::vector<CountedCall>& open = open_[call.ring];
    // Only calls that are windows are on this list; most calls are not.
    if (open.empty() || open.back().call.number != call.number) return;
    const CountedCall window = std::move(open.back());
    open.pop_back();
    // An exception ends a call early, and calls that it has cut off are not an
    // error.
    if (outcome == CallOutcome::kRaised) return;
    for (const auto& [place, count] : window.counts) {
      std::string missed = outcome == CallOutcome::kUnknown
                               ? "the end of a call is missing"
                               : Missed(facts, place, window);
      Verdict verdict = NewVerdict(facts, RuleAt(place).index, /*object=*/0);
      Judge(facts, RuleAt(place).spec, {count, missed, &window.call}, &verdict);
    }
  }

  void Fields(Archive& archive) override {
    archive(steps_, epoch_, step_counts_, epoch_counts_, open_);
  }

 private:
  const CountRule& RuleAt(size_t place) const { return judged_->rules[place]; }

  void Count(const Call& call, size_t place) {
    switch (RuleAt(place).spec.per) {
      case CountPer::kStep:
        step_counts_[place].Add(call);
        return;
      case CountPer::kEpoch:
        epoch_counts_[place].Add(call);
        return;
      case CountPer::kCall:
        // At any depth: a call counts for each open window around it.
        for (CountedCall& open : open_[call.ring]) {
          const auto found = open.counts.find(place);
          if (found != open.counts.end()) found->second.Add(call);
        }
        return;
    }
  }

  // Why calls of the function may be missing from the window. Asked also where
  // calls were counted: a count is right only if no call was missed.
  template <typename Window>
  std::string Missed(const ProcessFacts& facts, size_t place,
                     const Window& window) {
    return recorded_.WhyMissed(facts, RuleAt(place).spec.function,
                               window.recorded, window.gaps);
  }

  // Closes the step and the pass that the clock has left, before anything of
  // the event is counted. Must run at every event that may move the clock, or
  // calls would be counted for the window before.
  void Advance(const ProcessFacts& facts) {
    if (steps_.Advance(facts)) {
      const StepWindow& closed = steps_.closed();
      if (closed.whole) JudgeAll(facts, CountPer::kStep, closed, &step_counts_);
      step_counts_.clear();
    }
    const std::optional<uint64_t> epoch = facts.clock().epoch();
    if (epoch == epoch_.epoch) return;
    if (epoch_.whole) {
      JudgeAll(facts, CountPer::kEpoch, epoch_, &epoch_counts_);
    }
    epoch_counts_.clear();
    // The first pass has the set-up in it, and the last one never closes.
    epoch_ = {epoch, epoch && *epoch > 0, facts.gaps(), facts.recorded().now(),
              facts.clock().known_step()};
  }

  template <typename Window>
  void JudgeAll(const ProcessFacts& facts, CountPer per, const Window& window,
                Counts* counts) {
    // All rules, and not only those that have an entry: a function that was
    // never called in the window has the count 0.
    for (size_t place = 0; place < judged_->rules.size(); ++place) {
      if (RuleAt(place).spec.per != per) continue;
      Verdict verdict = NewVerdict(facts, RuleAt(place).index, /*object=*/0);
      // The clock is in the next step or pass by now.
      verdict.step = window.step;
      Judge(facts, RuleAt(place).spec,
            {(*counts)[place], Missed(facts, place, window), nullptr},
            &verdict);
    }
  }

  // A window that is to be judged for one rule.
  struct Ended {
    const Counted& count;
    std::string missed;  // why calls may have been missed; "": none was
    const Call* window;  // null: a step or a pass
  };

  void Judge(const ProcessFacts& facts, const CountSpec& spec,
             const Ended& ended, Verdict* verdict) {
    if (!ended.missed.empty()) {
      MarkUnknown(ended.missed, verdict);
    } else if (spec.counts.count(ended.count.calls) == 0) {
      Violate(facts, spec, ended, verdict);
    }
    judged_->sink->OnVerdict(*verdict);
  }

  static void Violate(const ProcessFacts& facts, const CountSpec& spec,
                      const Ended& ended, Verdict* verdict) {
    const Counted& count = ended.count;
    // The finding points to the last of too many calls, or else to the call in
    // which the function should have been called. A step or a pass has no such
    // call.
    Call call;
    call.function_id = count.function;
    call.site = count.site;
    if (count.calls == 0 && ended.window) call = *ended.window;
    MarkViolated(facts, call, verdict);
    if (count.calls == 0) {
      verdict->finding.apis = {spec.function.text};
    }
    verdict->finding.expected = spec.CountWords();
    verdict->finding.seen =
        std::to_string(count.calls) + (count.calls == 1 ? " call" : " calls");
  }

  const Judged* const judged_;
  FunctionsInWindows<CountRule> known_;
  RecordedCalls recorded_;
  StepWindows steps_;
  EpochWindow epoch_;
  Counts step_counts_;
  Counts epoch_counts_;
  std::map<uint32_t, std::vector<CountedCall>> open_;  // by ring
};

}  // namespace

const Relation* CallCount() {
  static const auto* const kRelation =
      new ProcessRelation<CountSpec, CountsOfProcess>("CallCount",
                                                      NewCountGenerator);
  return kRelation;
}

}  // namespace traincheck
