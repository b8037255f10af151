#include "invariants/relations/api_sequence/api_sequence.h"

#include <bit>
#include <map>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/hash.h"
#include "invariants/relations/api_sequence/sequence_generator.h"
#include "invariants/relations/api_sequence/sequence_spec.h"
#include "invariants/rules/recorded_calls.h"
#include "invariants/rules/step_windows.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"

namespace traincheck {

namespace {

using Judged = JudgedRules<SequenceRule>;

// One rule on one thread in the window that is open.
struct Progress {
  uint32_t seen = 0;  // bits of positions
  bool told = false;  // the order was broken
  // Hash of what was called in between. Only the learner reads it, and a
  // learner is never saved.
  uint64_t between = 0;
  uint32_t last_site = 0;  // of the last call that was in order

  bool SeveralSeen() const { return (seen & (seen - 1)) != 0; }
  void Fields(Archive& archive) { archive(seen, told, last_site); }
};

// By thread, then by place of the rule in its list.
using Threads = std::map<uint32_t, std::map<size_t, Progress>>;

class OrderInProcess : public ProcessObserver {
 public:
  explicit OrderInProcess(const Judged* judged)
      : judged_(judged), learning_(judged->sink->wants_examples()) {}

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    if (type == RecordType::kFunctionDef) known_.erase(id);
  }

  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    Advance(facts);
  }

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    Advance(facts);
    // For the context only calls that nothing encloses count: what they call
    // inside repeats them.
    const bool outermost = open_[call.ring]++ == 0;
    for (const auto& [place, position] : Find(call)) {
      Arrive(facts, call, place, position);
    }
    if (learning_ && outermost && call.function) NoteBetween(call);
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    uint32_t& open = open_[call.ring];
    if (open > 0) --open;
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    // The step that is open now is not whole and stays unjudged. The run is a
    // window even if it was cut short: then it is unknown.
    const std::string cut =
        end == ProcessEnd::kClean ? "" : WhoseEndWords(facts, end);
    CloseAll(facts, SequenceWindow::kRun, {0, 0, begin_, true}, cut, &in_run_);
  }

  void Fields(Archive& archive) override {
    archive(steps_, begin_, in_step_, in_run_, open_);
    if (archive.reading() && !(Fit(in_step_) && Fit(in_run_))) {
      archive.Fail("the order of calls is of other rules");
    }
  }

 private:
  // Rules by place in their list, with the position in their sequence.
  using Stations = std::vector<std::pair<size_t, uint32_t>>;

  // A snapshot is bytes from a file: each place must be one of the rules, and
  // each bit a position in its list, before both are used as indices.
  bool Fit(const Threads& threads) const {
    for (const auto& [ring, rules] : threads) {
      for (const auto& [place, progress] : rules) {
        if (place >= judged_->rules.size() ||
            uint64_t{progress.seen} >> SpecAt(place).functions.size() != 0) {
          return false;
        }
      }
    }
    return true;
  }

  const SequenceSpec& SpecAt(size_t place) const {
    return judged_->rules[place].spec;
  }
  Threads& ThreadsOf(SequenceWindow window) {
    return window == SequenceWindow::kStep ? in_step_ : in_run_;
  }

  // The cache is by function, but whether a call is a station depends on the
  // call, too: a forward must train and a step must be outermost.
  const Stations& Find(const Call& call) {
    static const auto* const kNone = new Stations;
    if (!call.function || !StationOf(call)) return *kNone;
    const auto [found, added] = known_.try_emplace(call.function_id);
    if (!added) return found->second;
    for (size_t place = 0; place < judged_->rules.size(); ++place) {
      const std::vector<FunctionMatch>& functions = SpecAt(place).functions;
      for (uint32_t i = 0; i < functions.size(); ++i) {
        if (functions[i].Matches(*call.function)) {
          found->second.emplace_back(place, i);
          // A function has one place in a sequence: the first that it matches.
          break;
        }
      }
    }
    return found->second;
  }

  void Arrive(const ProcessFacts& facts, const Call& call, size_t place,
              uint32_t position) {
    const SequenceSpec& spec = SpecAt(place);
    Progress& progress = ThreadsOf(spec.window)[call.ring][place];
    const uint32_t bit = uint32_t{1} << position;
    // Only first calls have an order: a loop makes all of its calls again.
    if (progress.seen & bit) return;
    // Has a later position been seen? (Its own bit is not set here.)
    const bool late = (progress.seen & ~(bit - 1)) != 0;
    if (!late || progress.told) {
      progress.seen |= bit;
      progress.last_site = call.site;
      return;
    }
    // As long as the order is kept, the last call has the latest position.
    const auto early = static_cast<uint32_t>(std::bit_width(progress.seen)) - 1;
    const StepWindow window = WindowOf(spec.window);
    progress.seen |= bit;
    // Noted, but not judged: the first step holds the set-up, and of a step
    // that began unseen the order is not known.
    if (!window.whole) return;
    progress.told = true;
    Verdict verdict = NewVerdict(facts, judged_->rules[place].index,
                                 /*object=*/call.ring);
    // Only an earlier call of the function that is late now, unseen, would have
    // kept the order. Unseen calls of the others cannot.
    const std::string missed = recorded_.WhyMissed(
        facts, spec.functions[position], window.recorded, window.gaps);
    if (missed.empty()) {
      MarkViolated(facts, call, &verdict);
      AddOnce(facts.definitions().Site(progress.last_site),
              &verdict.finding.sites);
      Explain(spec.functions[position], spec.functions[early],
              &verdict.finding);
    } else {
      MarkUnknown(missed, &verdict);
    }
    judged_->sink->OnVerdict(verdict);
  }

  // This one was called first, that one too early.
  static void Explain(const FunctionMatch& late, const FunctionMatch& early,
                      Finding* finding) {
    AddOnce(early.text, &finding->apis);
    finding->expected = late.Describe() + " before " + early.Describe();
    finding->seen =
        late.Describe() + " for the first time after " + early.Describe();
  }

  // The run is a window like a step: from the first record on, so any gap of
  // the process lies in it.
  StepWindow WindowOf(SequenceWindow window) const {
    if (window == SequenceWindow::kStep) return steps_.open();
    return {0, 0, begin_, true};
  }

  // The context of a window: what was called between the first and the last of
  // the functions of a rule, in its order. Each outermost call costs the open
  // rules of its thread; only the learner pays.
  void NoteBetween(const Call& call) {
    const auto [name, added] = names_.try_emplace(call.function_id);
    if (added) name->second = StableHash(call.function->name);
    for (const SequenceWindow window :
         {SequenceWindow::kStep, SequenceWindow::kRun}) {
      for (auto& [place, progress] : ThreadsOf(window)[call.ring]) {
        const size_t wanted = SpecAt(place).functions.size();
        // From the first that was called to the last.
        const bool all = progress.seen == (uint64_t{1} << wanted) - 1;
        if (progress.seen == 0 || all) continue;
        // By name and not by number, which differs between runs: equal contexts
        // of two runs are one trial.
        progress.between = progress.between * 0x9e3779b97f4a7c15 ^ name->second;
      }
    }
  }

  void Advance(const ProcessFacts& facts) {
    if (!steps_.Advance(facts)) return;
    CloseAll(facts, SequenceWindow::kStep, steps_.closed(), "", &in_step_);
    in_step_.clear();
  }

  // Gives a verdict for the orders that were not broken. A window in which
  // nothing was missed is a pass.
  void CloseAll(const ProcessFacts& facts, SequenceWindow kind,
                const StepWindow& window, const std::string& cut,
                Threads* threads) {
    if (!window.whole) return;
    for (const auto& [ring, rules] : *threads) {
      for (const auto& [place, progress] : rules) {
        // Told when it was broken; and a single call has no order.
        if (progress.told || !progress.SeveralSeen()) continue;
        Verdict verdict = NewVerdict(facts, judged_->rules[place].index, ring);
        if (kind == SequenceWindow::kStep) {
          verdict.step = static_cast<int64_t>(window.step);
        }
        verdict.context = progress.between;
        std::string missed = cut;
        // A call of any of them that nobody saw might have come too early.
        for (const FunctionMatch& function : SpecAt(place).functions) {
          if (!missed.empty()) break;
          missed = recorded_.WhyMissed(facts, function, window.recorded,
                                       window.gaps);
        }
        if (!missed.empty()) MarkUnknown(missed, &verdict);
        judged_->sink->OnVerdict(verdict);
      }
    }
  }

  const Judged* const judged_;
  RecordedCalls recorded_;
  const bool learning_;
  std::unordered_map<uint32_t, Stations> known_;  // by function
  std::unordered_map<uint32_t, uint64_t> names_;  // hashes, by function
  StepWindows steps_;
  RecordedSince begin_;  // of the process: everything is recorded
  Threads in_step_;
  Threads in_run_;
  std::map<uint32_t, uint32_t> open_;  // calls, by ring
};

}  // namespace

const Relation* ApiSequence() {
  static const auto* const kRelation =
      new ProcessRelation<SequenceSpec, OrderInProcess>("APISequence",
                                                        NewSequenceGenerator);
  return kRelation;
}

}  // namespace traincheck
