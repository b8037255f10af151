#include "invariants/relations/reproduced_steps/reproduced_steps.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "invariants/relations/reproduced_steps/course_spec.h"
#include "invariants/relations/reproduced_steps/step_digests.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"

namespace traincheck {

namespace {

constexpr size_t kFewestSteps = 4;
constexpr size_t kMostSteps = 32;

std::string RankOf(const ProcessFacts& facts) {
  if (!facts.rank()) return "";
  return absl::StrCat(*facts.rank(), " of ", facts.world());
}

// Generators that the reference run never drew from are not among those of
// `start`: scripts leave them without a seed.
bool BeginsAs(const CourseStart& start, const ProcessFacts& facts,
              const StepDigests& digests) {
  const std::map<std::string, uint64_t>& generators = digests.generators();
  return start.host == facts.definitions().process().host &&
         start.rank == RankOf(facts) &&
         std::all_of(start.generators.begin(), start.generators.end(),
                     [&](const auto& known) {
                       const auto found = generators.find(known.first);
                       return found != generators.end() &&
                              found->second == known.second;
                     });
}

class CoursesSeen : public ProcessObserver {
 public:
  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    if (!ended_) digests_.OnCallBegin(facts, call);
  }
  // Which generators are drawn from shows later, too.
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    digests_.OnState(facts, event);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const auto step = digests_.Ended(facts, call, outcome);
    if (!step) return;
    // What comes behind a step that is not whole is not determined by what is
    // known.
    ended_ =
        !step->complete || facts.gaps() > 0 || spec_.steps.size() == kMostSteps;
    if (ended_) return;
    // On another machine equal inputs may give other digests, so the rule is
    // for this one.
    spec_.start.host = facts.definitions().process().host;
    spec_.start.rank = RankOf(facts);
    spec_.steps.push_back(*step);
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    CourseSpec spec = spec_;
    // At the end of the run, as a generator may be drawn from late.
    spec.start.generators = digests_.UsedGenerators();
    const auto& generators = spec.start.generators;
    // Without a generator nothing shows whether another run has the same seed.
    if (spec.steps.size() < kFewestSteps || generators.empty()) return;
    if (std::any_of(generators.begin(), generators.end(), [](const auto& one) {
          return one.second == StepDigests::kUnread;
        })) {
      return;
    }
    out->Add({spec.ToJson(), Scope::kExperiment, {}});
  }

 private:
  StepDigests digests_;
  CourseSpec spec_;
  bool ended_ = false;
};

using CourseRule = SpecRule<CourseSpec>;
using Judged = JudgedRules<CourseRule>;

class CoursesOfProcess : public ProcessObserver {
 public:
  explicit CoursesOfProcess(const Judged* judged) : judged_(judged) {}

  void OnCallBegin(const ProcessFacts& facts, const Call& call) override {
    const bool any =
        std::any_of(judged_->rules.begin(), judged_->rules.end(),
                    [this](const CourseRule& rule) { return IsJudged(rule); });
    // Without an open step OnState hashes neither weights nor gradients, which
    // is most of the cost.
    if (any) digests_.OnCallBegin(facts, call);
  }
  void OnState(const ProcessFacts& facts, const StateEvent& event) override {
    digests_.OnState(facts, event);
  }
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const auto step = digests_.Ended(facts, call, outcome);
    if (!step) return;
    for (const CourseRule& rule : judged_->rules) {
      if (IsJudged(rule)) Judge(facts, call, *step, rule);
    }
    // Counted for every step, also those that could not be judged: the n-th is
    // compared with the n-th.
    ++steps_;
  }
  void Fields(Archive& archive) override { archive(digests_, steps_, parted_); }

 private:
  bool IsJudged(const CourseRule& rule) const {
    return steps_ < rule.spec.steps.size() && !parted_.contains(rule.index);
  }

  void Judge(const ProcessFacts& facts, const Call& call,
             const StepDigest& step, const CourseRule& rule) {
    const StepDigest& expected = rule.spec.steps[steps_];
    // The first difference is the finding and all later ones follow from it, so
    // whatever ends the comparison ends it for good (parted_).
    Verdict verdict = NewVerdict(facts, rule.index, call.object);
    if (facts.gaps() > 0 || !step.complete) {
      MarkUnknown(
          "what the step begins with was not all recorded on " + facts.Name(),
          &verdict);
      // Whether it began like the reference run will not be known, or how many
      // steps it has made.
      if (steps_ == 0 || facts.gaps() > 0) parted_.insert(rule.index);
    } else if (!IsMeant(facts, step, rule.spec)) {
      parted_.insert(rule.index);
      return;
    } else if (const char* other = FirstDifference(step, expected)) {
      parted_.insert(rule.index);
      MarkViolated(facts, call, &verdict);
      verdict.finding.expected =
          absl::StrCat("step ", steps_,
                       " has the rows, weights and gradients of the reference "
                       "run, which began in the same way");
      verdict.finding.seen = other;
    }
    judged_->sink->OnVerdict(verdict);
  }

  // Does the rule apply to this run, as far as it is known? Asked at each step:
  // from a step on whose settings are others it does not.
  bool IsMeant(const ProcessFacts& facts, const StepDigest& step,
               const CourseSpec& spec) const {
    const StepDigest& expected = spec.steps[steps_];
    if (step.settings != expected.settings) return false;
    // Gradients are left out of the begin: they are the first thing that a
    // changed loss changes.
    return steps_ > 0 ||
           (BeginsAs(spec.start, facts, digests_) &&
            step.rows == expected.rows && step.weights == expected.weights);
  }

  // Null: there is none. In the order in which a step uses them, so that the
  // words name the first thing that differs: weights of the step before, rows
  // of this one, then the gradients that follow from both.
  static const char* FirstDifference(const StepDigest& step,
                                     const StepDigest& expected) {
    if (step.weights != expected.weights) {
      return "the weights are not those of the reference run, although the "
             "step before had the same gradients: what the optimizer does "
             "with them, or what else writes weights, has changed";
    }
    if (step.rows != expected.rows) {
      return "other rows of the data are read than in the reference run, "
             "although everything before was the same";
    }
    if (step.gradients != expected.gradients) {
      return "the gradients are not those of the reference run, although "
             "weights and random numbers are: the batch, the forward or the "
             "loss has changed";
    }
    return nullptr;
  }

  const Judged* const judged_;
  StepDigests digests_;
  uint64_t steps_ = 0;       // so far
  std::set<size_t> parted_;  // rules that are not judged any more
};

}  // namespace

const Relation* ReproducedSteps() {
  static const auto* const kRelation =
      new ProcessRelation<CourseSpec, CoursesOfProcess>(
          "ReproducedSteps", NewSeenGenerator<CoursesSeen>);
  return kRelation;
}

}  // namespace traincheck
