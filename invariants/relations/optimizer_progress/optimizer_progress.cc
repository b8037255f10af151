#include "invariants/relations/optimizer_progress/optimizer_progress.h"

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "base/json_reader.h"
#include "invariants/facts/process_facts.h"
#include "invariants/facts/variable_state.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"
#include "invariants/trace/call_category.h"

namespace traincheck {

namespace {

// The learned number is the largest of the reference run times this: a run that
// accumulates over more micro-batches is not an error.
constexpr uint64_t kRoom = 4;
// No learned rule allows fewer, also where the reference run stepped after each
// backward.
constexpr uint64_t kLeastBackwards = 16;

struct ProgressSpec {
  uint64_t backwards = 0;

  nlohmann::json ToJson() const { return {{"backwards", backwards}}; }
  std::string Describe() const {
    return "After the first optimizer step, at most " +
           std::to_string(backwards) +
           " backwards with gradients run between two optimizer steps.";
  }
  static void AddNeeds(CaptureNeeds* needs) { needs->Gradients(); }
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<ProgressSpec> Parse(const nlohmann::json& parameters,
                                            const std::string& path);
};

absl::StatusOr<ProgressSpec> ProgressSpec::Parse(
    const nlohmann::json& parameters, const std::string& path) {
  ProgressSpec spec;
  JsonReader reader(parameters, path);
  spec.backwards = reader.Unsigned("backwards");
  if (spec.backwards == 0) reader.Fail("backwards", "not above 0");
  return reader.Finish(spec);
}

// The backwards of one process since an optimizer stepped last.
class Stretch {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) {
    if (!HasCategory(call, CallCategory::kBackward) || !OpensWindow(call) ||
        facts.clock().contexts().InsideStep(call.ring)) {
      return;
    }
    open_[call.ring] = {call.number, Tri::kNo, /*recorded=*/false};
  }

  void OnState(const ProcessFacts& facts, const StateEvent& event) {
    if (event.point != StatePoint::kBackwardEnd || !event.call) return;
    const auto open = open_.find(event.call->ring);
    const VariableState* variable = facts.Variable(event.variable_id);
    if (open == open_.end() || !variable) return;
    Backward& backward = open->second;
    backward.recorded = true;
    const Tri written = variable->grad_written();
    // One variable that got a gradient is enough; one of which it is not known
    // outweighs those that got none.
    if (written == Tri::kYes || backward.gave == Tri::kNo) {
      backward.gave = written;
    }
  }

  // True: a backward has ended that gave gradients, or may have.
  bool OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) {
    const auto open = open_.find(call.ring);
    if (open == open_.end() || open->second.number != call.number) return false;
    const Backward backward = open->second;
    open_.erase(open);
    // A backward that raised need not have given any gradient.
    if (outcome == CallOutcome::kRaised) return false;
    Notice(facts);
    // An orphan may be part of a step whose begin is missing.
    const bool known = backward.recorded && !call.orphan;
    const Tri gave = known ? backward.gave : Tri::kUnknown;
    gave_ += gave == Tri::kYes;
    unsure_ += gave == Tri::kUnknown;
    sampled_ &= gave != Tri::kUnknown || facts.recorded().whole();
    return gave != Tri::kNo;
  }

  // An optimizer steps, or would but for its scaler.
  void Begin(const ProcessFacts& facts) {
    // An open backward is forgotten too: where an optimizer steps inside the
    // backward (a hook for each layer) the gradients have been used.
    *this = Stretch();
    begun_ = true;
    gaps_ = facts.gaps();
  }

  // Behind the first step?
  bool begun() const { return begun_; }
  uint64_t gave() const { return gave_; }
  // Those included that may have given some.
  uint64_t most() const { return gave_ + unsure_; }
  // Were those of which it is not known in steps that were sampled?
  bool sampled() const { return sampled_; }
  // Are records missing since its begin?
  bool IsBroken(const ProcessFacts& facts) const {
    return broken_ || gaps_ != facts.gaps();
  }

  void Fields(Archive& archive) {
    archive(open_, begun_, gave_, unsure_, sampled_, broken_, gaps_);
  }

 private:
  struct Backward {
    uint64_t number = 0;  // of the call
    Tri gave = Tri::kNo;
    bool recorded = false;  // some gradient, as it left it
    void Fields(Archive& archive) { archive(number, gave, recorded); }
  };

  // Begins to count anew behind missing records: a step may be among them.
  void Notice(const ProcessFacts& facts) {
    if (gaps_ == facts.gaps()) return;
    gaps_ = facts.gaps();
    broken_ = true;
    gave_ = unsure_ = 0;
    sampled_ = true;
  }

  std::map<uint32_t, Backward> open_;  // by ring
  bool begun_ = false;
  uint64_t gave_ = 0;
  uint64_t unsure_ = 0;
  bool sampled_ = true;
  bool broken_ = false;
  uint64_t gaps_ = 0;
};

bool IsSkippedStep(const MarkEvent& event) {
  return event.kind == MarkKind::kStepSkipped;
}

class StretchesSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    stretch_.OnCallBegin(facts, call);
    if (IsOptimizerStep(call)) Step(facts);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    stretch_.OnState(facts, event);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    stretch_.OnCallEnd(facts, call, outcome);
  }
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    if (IsSkippedStep(event)) Step(facts);
  }

  void Collect(const ProcessDefinitions&, HypothesisSet* out) const {
    if (largest_ == 0) return;
    const ProgressSpec spec{std::max(kLeastBackwards, kRoom * largest_)};
    out->Add({spec.ToJson(), Scope::kExperiment, {}});
  }

 private:
  void Step(const ProcessFacts& facts) {
    if (stretch_.begun() && !stretch_.IsBroken(facts)) {
      // With those that may have given gradients, so that the learned number is
      // never too small.
      largest_ = std::max(largest_, stretch_.most());
    }
    stretch_.Begin(facts);
  }

  Stretch stretch_;
  uint64_t largest_ = 0;  // backwards between two steps
};

using ProgressRule = SpecRule<ProgressSpec>;
using Judged = JudgedRules<ProgressRule>;

// A violation is reported at the backward that is one too many, and not at the
// next step, which may never come.
class ProgressOfProcess : public ProcessObserver {
 public:
  explicit ProgressOfProcess(const Judged* judged) : judged_(judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    stretch_.OnCallBegin(facts, call);
    if (IsOptimizerStep(call)) Step(facts);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    stretch_.OnState(facts, event);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const bool counts = stretch_.OnCallEnd(facts, call, outcome);
    if (!counts || !stretch_.begun()) return;
    for (const ProgressRule& rule : judged_->rules) {
      JudgeBackward(facts, call, rule);
    }
  }
  void OnMark(const ProcessFacts& facts, const MarkEvent& event) override {
    if (IsSkippedStep(event)) Step(facts);
  }
  void Fields(Archive& archive) override { archive(stretch_, judgements_); }

 private:
  // What one rule has seen.
  struct Judgement {
    // What was reported of this stretch: each once.
    bool violated = false;
    bool unknown = false;
    // Backwards since the last trial. A loop that steps after each backward
    // could hardly break the rule, so only as many backwards as may not be in a
    // row make one trial.
    uint64_t backwards = 0;
    void Fields(Archive& archive) { archive(violated, unknown, backwards); }
  };

  void JudgeBackward(const ProcessFacts& facts, const Call& call,
                     const ProgressRule& rule) {
    Judgement& judgement = judgements_[rule.index];
    ++judgement.backwards;
    const uint64_t limit = rule.spec.backwards;
    if (stretch_.most() <= limit || judgement.violated) return;
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    // Those that surely gave gradients decide a violation; with those that may
    // have, it is unknown at most.
    if (stretch_.gave() > limit) {
      judgement.violated = true;
      MarkViolated(facts, call, &verdict);
      verdict.finding.expected = "a step of some optimizer after at most " +
                                 std::to_string(limit) + " backwards";
      verdict.finding.seen = std::to_string(stretch_.gave()) +
                             " backwards in a row gave gradients, and no "
                             "optimizer stepped";
    } else if (!judgement.unknown) {
      judgement.unknown = true;
      MarkUnknown(stretch_.sampled()
                      ? "gradients were not recorded at the backwards"
                      : facts.not_sampled(),
                  &verdict);
    } else {
      return;
    }
    judged_->sink->OnVerdict(verdict);
  }

  void Step(const ProcessFacts& facts) {
    const bool broken = stretch_.IsBroken(facts);
    // A stretch without a backward that counts says nothing.
    const bool concerns = stretch_.begun() && (stretch_.most() > 0 || broken);
    for (const ProgressRule& rule : judged_->rules) {
      if (concerns) JudgeStep(facts, broken, rule);
      Judgement& judgement = judgements_[rule.index];
      // The next stretch is another window.
      judgement.violated = judgement.unknown = false;
    }
    stretch_.Begin(facts);
  }

  void JudgeStep(const ProcessFacts& facts, bool broken,
                 const ProgressRule& rule) {
    Judgement& judgement = judgements_[rule.index];
    // The stretch was told when it became too long.
    if (judgement.violated || judgement.unknown) return;
    Verdict verdict = NewVerdict(facts, rule.index, /*object=*/0);
    // Fewer backwards could not have been too many.
    verdict.varied = judgement.backwards > rule.spec.backwards;
    if (broken) {
      MarkUnknown(facts.gap_reason(), &verdict);
    } else if (verdict.varied) {
      judgement.backwards = 0;
    }
    judged_->sink->OnVerdict(verdict);
  }

  const Judged* const judged_;
  Stretch stretch_;
  std::map<size_t, Judgement> judgements_;  // by rule
};

}  // namespace

const Relation* OptimizerProgress() {
  static const auto* const kRelation =
      new ProcessRelation<ProgressSpec, ProgressOfProcess>(
          "OptimizerProgress", NewSeenGenerator<StretchesSeen>);
  return kRelation;
}

}  // namespace traincheck
