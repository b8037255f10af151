#include "invariants/relations/call_returns/call_returns.h"

#include <algorithm>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/json_reader.h"
#include "invariants/relations/call_returns/call_durations.h"
#include "invariants/relations/call_returns/late_calls.h"
#include "invariants/relations/call_returns/open_calls.h"
#include "invariants/relations/call_returns/standstill_words.h"
#include "invariants/rules/rank_groups.h"
#include "invariants/rules/spec_relation.h"
#include "invariants/rules/step_windows.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

namespace {

constexpr uint64_t kSecond = 1000000;  // us
// The least time that a line with few calls gets from a deadlock rule: its
// first calls may be compiling.
constexpr uint64_t kFirstCalls = 60 * kSecond;
constexpr char kLabel[] = "standstill";
// Microseconds of a year times this number fit into 64 bits.
constexpr uint64_t kMostSeconds = 31536000;
constexpr uint64_t kMostMedians = 100000;

struct ReturnsSpec {
  uint64_t seconds = 0;
  uint64_t medians = 0;
  uint64_t known_from = 0;
  bool deadlock = false;

  static absl::StatusOr<ReturnsSpec> Parse(const nlohmann::json& parameters,
                                           const std::string& path);
  std::string Describe() const {
    const std::string limit =
        absl::StrCat(seconds, " s (or ", medians,
                     " times the usual duration of the call at that line)");
    if (deadlock) {
      return absl::StrCat("Ranks never all wait for each other longer than ",
                          limit, ".");
    }
    return absl::StrCat(
        "A call that waits for other ranks or for data returns within ", limit,
        ".");
  }
  static void AddNeeds(CaptureNeeds* needs) {
    // The collectives that name their group are recorded under every plan, too.
    for (const char* category :
         {"backward", "forward", "optimizer_step", "loader_next"}) {
      needs->CallsOfCategory(category);
    }
  }
  static std::vector<const Fact*> Facts() { return {}; }

  bool Knows(const CallDurations& usual) const {
    return usual.count() >= known_from;
  }
  uint64_t LeastUs() const { return seconds * kSecond; }
  // How long a call from this line may take before it is late.
  uint64_t LimitUs(const CallDurations& usual) const {
    // A line that is slow as a rule (a loader that reads from afar) gets more
    // time, and none gets less than `seconds`.
    if (Knows(usual)) return std::max(LeastUs(), medians * usual.MedianUs());
    // Before the line is known a deadlock, which is an alert, waits for a
    // minute at least: first calls compile.
    return deadlock ? std::max(LeastUs(), kFirstCalls) : LeastUs();
  }
  std::string LimitWords(const CallDurations& usual) const {
    std::string words = DurationWords(LimitUs(usual));
    if (!Knows(usual)) return words;
    return absl::StrCat(words, " (its calls take ",
                        DurationWords(usual.MedianUs()), ")");
  }
};

absl::StatusOr<ReturnsSpec> ReturnsSpec::Parse(const nlohmann::json& parameters,
                                               const std::string& path) {
  JsonReader reader(parameters, path);
  ReturnsSpec spec;
  spec.seconds = reader.Unsigned("seconds");
  spec.medians = reader.Unsigned("medians");
  spec.known_from = reader.Unsigned("known_from");
  if (spec.seconds == 0) reader.Fail("seconds", "not above 0");
  if (spec.seconds > kMostSeconds) reader.Fail("seconds", "above 31536000");
  if (spec.medians > kMostMedians) reader.Fail("medians", "above 100000");
  if (spec.known_from == 0) reader.Fail("known_from", "not above 0");
  if (reader.Has("deadlock")) {
    const nlohmann::json& deadlock = reader.Any("deadlock");
    if (!deadlock.is_boolean()) reader.Fail("deadlock", "not true or false");
    spec.deadlock = deadlock.is_boolean() && deadlock.get<bool>();
  }
  return reader.Finish(spec);
}

using ReturnsRule = SpecRule<ReturnsSpec>;

// What the parts of an evaluator have in common.
class Judged {
 public:
  Judged(std::vector<ReturnsRule> all, RuleSink* sink)
      : rules(std::move(all)), sink_(sink) {
    // Each rule has its own limit, and so its own late calls. The listeners
    // point to this object, which is never moved.
    for (const ReturnsRule& rule : rules) {
      late_.emplace_back(rule.spec.deadlock,
                         [this, index = rule.index](const Standstill& found) {
                           Tell(index, found);
                         });
    }
  }

  // As the rules.
  LateCalls& late(size_t rule) { return late_[rule]; }
  std::vector<LateCalls>& all_late() { return late_; }
  RuleSink* sink() const { return sink_; }

  const std::vector<ReturnsRule> rules;

 private:
  // The listener of LateCalls. It runs inside the event of the rank that
  // completes the picture, which need not be the rank that is to blame.
  void Tell(size_t index, const Standstill& found) {
    Verdict verdict;
    verdict.rule = index;
    verdict.outcome = Outcome::kViolated;
    verdict.attempt = found.attempt;
    verdict.unit = found.unit;
    verdict.step = StepOf(found);
    verdict.across_ranks = true;
    verdict.again = found.again;
    verdict.ranks = found.ranks;
    // One label for all: a standstill that grows worse is one violation.
    verdict.label = kLabel;
    verdict.finding = FindingOf(found);
    sink_->OnVerdict(verdict);
  }

  RuleSink* const sink_;
  std::vector<LateCalls> late_;
};

class ReturnsOfProcess : public ProcessObserver {
 public:
  explicit ReturnsOfProcess(Judged* judged) : judged_(judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    // Before the call is known: the time that has passed by now belongs to the
    // calls that were open before it.
    NoteGaps(facts);
    Judge(facts);
    CloseStep(facts);
    OpenCall& open = calls_.Begin(facts, call);
    if (open.shared.kind != 0) Share(facts, open.shared);
  }

  void OnCollective(const ProcessFacts& facts,
                    const CollectiveEvent& event) override {
    if (!facts.rank()) return;
    NoteGaps(facts);
    // Which collective of which group it is stands in a record behind the begin
    // of its call.
    const SharedCall* call = calls_.SetCollective(facts, event);
    if (call) Share(facts, *call);
  }

  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    calls_.OnDefinition(type);
  }

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    NoteGaps(facts);
    Judge(facts);
    if (const OpenCall* open = calls_.Find(call); open && open->waits) {
      // A call that raised has come back as well, but its rank may have given
      // up waiting: LateCalls goes on knowing where it stood.
      returned_.insert(open->shared.kind);
      if (outcome == CallOutcome::kReturned) Return(facts, *open);
    }
    calls_.End(facts, call);
    CloseStep(facts);
  }

  void OnMark(const ProcessFacts& facts, const MarkEvent& mark) override {
    NoteGaps(facts);
    calls_.OnMark(facts, mark);
  }

  // The relay says that the process lives and records nothing: without this a
  // call that never returns would never be late.
  void OnQuiet(const ProcessFacts& facts) override {
    NoteGaps(facts);
    Judge(facts);
  }

  void OnEnd(const ProcessFacts& facts, ProcessEnd end) override {
    // A worker has the rank of its trainer, which goes on.
    if (!facts.rank() || facts.is_worker()) return;
    NoteGaps(facts);
    // Those who wait for this rank now wait for ever: its end may complete a
    // deadlock.
    const std::string how = EndWords(facts, end);
    for (LateCalls& late : judged_->all_late()) {
      late.EndRank(facts.attempt(), *facts.rank(), how);
    }
  }

  void Fields(Archive& archive) override {
    archive(calls_, usual_, returned_, steps_, gaps_);
  }

 private:
  using Line = std::pair<uint32_t, uint32_t>;  // function, site

  static Line LineOf(const Call& call) { return {call.function_id, call.site}; }

  // Records are missing since the event before: the others cannot rely on what
  // this rank was seen to begin.
  void NoteGaps(const ProcessFacts& facts) {
    if (gaps_ == facts.gaps() || !facts.rank()) return;
    gaps_ = facts.gaps();
    for (LateCalls& late : judged_->all_late()) {
      late.LoseCount(facts.attempt(), *facts.rank());
    }
  }

  // Each rule has its own LateCalls (Judged), and each of them counts who has
  // begun what. REQUIRES: the process has a rank.
  void Share(const ProcessFacts& facts, const SharedCall& call) {
    for (LateCalls& late : judged_->all_late()) {
      late.Begin(facts.attempt(), *facts.rank(), facts.world(), call);
    }
  }

  void Return(const ProcessFacts& facts, const OpenCall& open) {
    // Times around missing records may be wrong by as much as those took.
    if (open.timed && open.gaps == facts.gaps()) {
      usual_[LineOf(open.call)].Add(facts.now_us() - open.call.begin_us);
    }
    if (open.late.empty() || !facts.rank()) return;
    for (LateCalls& late : judged_->all_late()) {
      late.Return(facts.attempt(), *facts.rank());
    }
  }

  void Judge(const ProcessFacts& facts) {
    for (OpenCall* open : calls_.Waiting(facts)) {
      // Both times are of this process's machine. now_us() never goes back, so
      // the difference does not wrap.
      const uint64_t waited = facts.now_us() - open->since_us;
      for (size_t i = 0; i < judged_->rules.size(); ++i) {
        const ReturnsRule& rule = judged_->rules[i];
        // First what costs nothing: it is asked at each call.
        if (waited < rule.spec.LeastUs() ||
            waited < rule.spec.LimitUs(usual_[LineOf(open->call)])) {
          continue;
        }
        // Each call is late once, however long it takes.
        if (!open->late.insert(rule.index).second) continue;
        OnLate(facts, *open, rule, &judged_->late(i));
      }
    }
  }

  // Keeps the call in words: its definitions go with the process, and others
  // may be told of it later.
  void OnLate(const ProcessFacts& facts, const OpenCall& open,
              const ReturnsRule& rule, LateCalls* late) {
    LateCall call;
    call.shared = open.shared;
    call.function = facts.FunctionName(open.call.function_id);
    call.site = facts.definitions().Site(open.call.site);
    call.step = open.step;
    call.brings = BroughtBy(facts, open);
    call.limit = rule.spec.LimitWords(usual_[LineOf(open.call)]);
    if (facts.rank()) {
      late->OnLate(facts.attempt(), *facts.rank(), facts.world(), call);
    }
    // LateCalls has told of a call that others are to make, with what they do.
    // What is this rank's alone is told here, and is never a deadlock.
    if (call.shared.kind != 0 || rule.spec.deadlock) return;
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    verdict.step = open.step;
    MarkViolated(facts, open.call, &verdict);
    verdict.finding = FindingOf(call);
    judged_->sink()->OnVerdict(verdict);
  }

  // A pass for each rule and kind of call that came back in the step: without
  // passes a rule that was never broken would look like one that had no
  // occasion.
  void CloseStep(const ProcessFacts& facts) {
    if (!steps_.Advance(facts)) return;
    const StepWindow& closed = steps_.closed();
    for (const ReturnsRule& rule : judged_->rules) {
      for (const uint64_t kind : returned_) {
        Pass(facts, rule, kind, closed);
      }
    }
    returned_.clear();
  }

  void Pass(const ProcessFacts& facts, const ReturnsRule& rule, uint64_t kind,
            const StepWindow& closed) {
    // A single rank has nobody to wait for, so such a rule has no windows.
    if (rule.spec.deadlock && facts.world() < 2) return;
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    // Passes stand in the unit in which a violation would: that of the shared
    // calls, 0 for deadlocks, else that of this process.
    if (kind != 0 || rule.spec.deadlock) verdict.unit = kind;
    verdict.step = static_cast<int64_t>(closed.step);
    // Nothing is learned of this relation.
    verdict.varied = false;
    if (closed.gaps != facts.gaps()) MarkUnknown(facts.gap_reason(), &verdict);
    judged_->sink()->OnVerdict(verdict);
  }

  Judged* const judged_;
  OpenCalls calls_;
  // Durations of calls that returned, by line: a program has few lines, and
  // each takes bounded memory.
  std::map<Line, CallDurations> usual_;
  // Kinds of calls that came back in the open step, which give a pass each when
  // the step closes; 0: of no shared kind.
  std::set<uint64_t> returned_;
  StepWindows steps_;
  uint64_t gaps_ = 0;  // that the LateCalls were told
};

class ReturnsOfRun : public RunObserver {
 public:
  ReturnsOfRun(std::vector<ReturnsRule> rules, RuleSink* sink)
      : judged_(std::move(rules), sink) {}

  std::unique_ptr<ProcessObserver> AddProcess(
      const ProcessFacts& facts) override {
    return std::make_unique<ReturnsOfProcess>(&judged_);
  }
  // Calls that are open at the end of the records are late only if the records
  // say that so much time has passed.
  void EndRun() override {}
  void Fields(Archive& archive) override {
    for (LateCalls& late : judged_.all_late()) archive(late);
  }

 private:
  Judged judged_;
};

// How long is too long follows from no run: the rules are built in, and nothing
// is learned.
class NothingSeen : public ProcessObserver {
 public:
  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {}
};

}  // namespace

const Relation* CallReturns() {
  static const auto* const kRelation =
      new SpecRelation<ReturnsSpec, ReturnsOfRun>(
          "CallReturns", NewSeenGenerator<NothingSeen>);
  return kRelation;
}

}  // namespace traincheck
