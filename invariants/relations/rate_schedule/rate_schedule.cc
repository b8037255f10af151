#include "invariants/relations/rate_schedule/rate_schedule.h"

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/json_reader.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/process_facts.h"
#include "invariants/relations/rate_schedule/rate_course.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/verdicts.h"

namespace traincheck {

namespace {

constexpr size_t kMostGroups = 16;  // an optimizer of more is left aside
constexpr uint64_t kFewestSteps = 8;
// A program that makes an optimizer for each fold or episode makes hundreds,
// each of which would be a rule.
constexpr uint64_t kMostOptimizers = 8;
constexpr char kPlateau[] = "ReduceLROnPlateau";

struct ScheduleSpec {
  static constexpr bool kIsHabit = true;
  static constexpr bool is_structure() { return true; }

  std::string optimizer;          // its class
  uint64_t ordinal = 0;           // among the optimizers of the process
  uint64_t steps = 0;             // that are known
  std::vector<RateCourse> rates;  // by group

  nlohmann::json ToJson() const {
    nlohmann::json groups = nlohmann::json::array();
    for (const RateCourse& course : rates) groups.push_back(course.ToJson());
    return {{"optimizer", optimizer},
            {"ordinal", ordinal},
            {"steps", steps},
            {"rates", std::move(groups)}};
  }
  std::string Describe() const {
    return "Over its first " + std::to_string(steps) +
           " steps the learning rates of " + optimizer +
           " are those of the reference runs.";
  }
  // Numbers of optimizers are recorded in every step, whatever the plan.
  static void AddNeeds(CaptureNeeds*) {}
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<ScheduleSpec> Parse(const nlohmann::json& parameters,
                                            const std::string& path);
};

absl::StatusOr<ScheduleSpec> ScheduleSpec::Parse(
    const nlohmann::json& parameters, const std::string& path) {
  ScheduleSpec spec;
  JsonReader reader(parameters, path);
  spec.optimizer = reader.String("optimizer");
  spec.ordinal = reader.Unsigned("ordinal");
  spec.steps = reader.Unsigned("steps");
  const nlohmann::json& groups = reader.Array("rates");
  if (!groups.is_array() || groups.empty()) {
    reader.Fail("rates", "has no group");
    return reader.Finish(spec);
  }
  for (const nlohmann::json& group : groups) {
    auto course = RateCourse::Parse(group);
    if (!course) {
      reader.Fail("rates",
                  "not a list of [step, rate] from step 0 on for each group");
      break;
    }
    spec.rates.push_back(*std::move(course));
  }
  return reader.Finish(spec);
}

// An optimizer at one of its steps.
struct OptimizerAtStep {
  std::string optimizer;
  uint64_t ordinal = 0;
  uint64_t step = 0;
  std::vector<std::optional<double>> rates;  // by group; none: not known
};

// Called at the end of a step: its rates were recorded when it began, and its
// clock does not count it yet. None: no step that is looked at, or it is not
// known which.
std::optional<OptimizerAtStep> MomentOf(const ProcessFacts& facts,
                                        const Call& call, CallOutcome outcome) {
  if (!IsOptimizerStep(call) || outcome != CallOutcome::kReturned) {
    return std::nullopt;
  }
  const auto step = facts.clock().OptimizerSteps(call.object);
  // Some schedules go on where a GradScaler leaves a step out, and some do not,
  // so courses behind such a step are not comparable.
  if (facts.clock().SkippedSteps(call.object) > 0) return std::nullopt;
  const Optimizer* optimizer = facts.ownership().Find(call.object);
  const ObjectInfo* object = facts.definitions().Object(call.object);
  if (!step || !optimizer || !object || !RateCourse::IsLookedAt(*step)) {
    return std::nullopt;
  }
  OptimizerAtStep moment{object->class_name, optimizer->ordinal, *step, {}};
  size_t groups = 0;
  for (const HeldVariable& held : optimizer->held) {
    // One more than kMostGroups says that there are more: the numbers of groups
    // come from records, and may be anything.
    groups = std::max(groups, std::min<size_t>(held.group, kMostGroups) + 1);
  }
  moment.rates.resize(groups);
  for (uint32_t group = 0; group < moment.rates.size(); ++group) {
    moment.rates[group] =
        facts.optimizer_books().LearningRate(call.object, group);
  }
  return moment;
}

class SchedulesSeen : public ProcessObserver {
 public:
  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const std::optional<OptimizerAtStep> moment =
        MomentOf(facts, call, outcome);
    if (!moment) return;
    Seen& seen = seen_[call.object];
    // The course ends where a step is missing, or its groups are others.
    if (seen.ended || !Extends(*moment, &seen.spec)) seen.ended = true;
  }

  void Collect(const ProcessDefinitions& definitions,
               HypothesisSet* out) const {
    // One such schedule in the process is enough: which optimizer it steps is
    // not asked.
    for (const auto& [id, object] : definitions.objects()) {
      // Another run takes another course.
      if (object.class_name.ends_with(kPlateau)) return;
    }
    for (const auto& [object, seen] : seen_) {
      if (seen.spec.steps < kFewestSteps) continue;
      if (seen.spec.ordinal >= kMostOptimizers) continue;
      out->Add({seen.spec.ToJson(), Scope::kExperiment, {}});
    }
  }

 private:
  struct Seen {
    ScheduleSpec spec;
    bool ended = false;
  };

  // Takes the step into the course; false where the course cannot go on. What
  // was taken before stays a course of so many steps.
  static bool Extends(const OptimizerAtStep& moment, ScheduleSpec* spec) {
    const bool is_first = spec->steps == 0;
    // A course without its first step, or with a hole, is not learned.
    if (moment.step != (is_first ? 0 : NextLookedAt(spec->steps))) return false;
    const size_t groups = moment.rates.size();
    if (groups == 0 || groups > kMostGroups) return false;
    if (!is_first && groups != spec->rates.size()) return false;
    if (!std::all_of(moment.rates.begin(), moment.rates.end(),
                     [](const auto& rate) { return rate.has_value(); })) {
      return false;
    }
    spec->optimizer = moment.optimizer;
    spec->ordinal = moment.ordinal;
    spec->rates.resize(groups);
    for (size_t group = 0; group < groups; ++group) {
      spec->rates[group].Add(moment.step, *moment.rates[group]);
    }
    spec->steps = moment.step + 1;
    return true;
  }

  static uint64_t NextLookedAt(uint64_t step) {
    while (!RateCourse::IsLookedAt(step)) ++step;
    return step;
  }

  std::map<uint32_t, Seen> seen_;  // by optimizer
};

using ScheduleRule = SpecRule<ScheduleSpec>;
using Judged = JudgedRules<ScheduleRule>;

class SchedulesOfProcess : public ProcessObserver {
 public:
  explicit SchedulesOfProcess(const Judged* judged) : judged_(judged) {}

  void OnCallEnd(const ProcessFacts& facts, const Call& call,
                 CallOutcome outcome) override {
    const std::optional<OptimizerAtStep> moment =
        MomentOf(facts, call, outcome);
    if (!moment) return;
    for (const ScheduleRule& rule : judged_->rules) {
      const ScheduleSpec& spec = rule.spec;
      if (spec.optimizer == moment->optimizer &&
          // The reference runs say nothing of later steps.
          spec.ordinal == moment->ordinal && moment->step < spec.steps) {
        Judge(facts, call, *moment, rule);
      }
    }
  }
  void Fields(Archive& archive) override { archive(begun_); }

 private:
  enum class Begin : uint8_t { kUnseen, kAsKnown, kOther };

  // How the optimizer began, which its first step shows.
  Begin BeginOf(const Call& call, const OptimizerAtStep& moment,
                const ScheduleRule& rule) {
    // kUnseen at first, and as long as the first step is missing.
    Begin& begin = begun_[{rule.index, call.object}];
    if (moment.step == 0 && !moment.rates.empty() && moment.rates[0]) {
      const bool as_known =
          moment.rates.size() == rule.spec.rates.size() &&
          // By the first group alone: another group that gets a wrong rate is
          // what the rule is to find, and not another setting.
          RateCourse::AreEqual(*moment.rates[0], *rule.spec.rates[0].At(0));
      begin = as_known ? Begin::kAsKnown : Begin::kOther;
    }
    return begin;
  }

  void Judge(const ProcessFacts& facts, const Call& call,
             const OptimizerAtStep& moment, const ScheduleRule& rule) {
    const Begin begin = BeginOf(call, moment, rule);
    if (begin == Begin::kOther) return;
    Verdict verdict = NewVerdict(facts, rule.index, call.object);
    if (begin == Begin::kUnseen) {
      MarkUnknown("the first step of " + moment.optimizer +
                      " was not recorded on " + facts.Name(),
                  &verdict);
    } else {
      Compare(facts, call, moment, rule.spec, &verdict);
    }
    judged_->sink->OnVerdict(verdict);
  }

  static void Compare(const ProcessFacts& facts, const Call& call,
                      const OptimizerAtStep& moment, const ScheduleSpec& spec,
                      Verdict* verdict) {
    // An optimizer may get or lose parameter groups behind its first step.
    // Their rates cannot be compared then.
    bool missing = moment.rates.size() != spec.rates.size();
    for (size_t group = 0; group < spec.rates.size(); ++group) {
      const double expected = *spec.rates[group].At(moment.step);
      if (group >= moment.rates.size() || !moment.rates[group]) {
        missing = true;
        continue;
      }
      const double rate = *moment.rates[group];
      // A group that differs decides, whatever was not recorded of others.
      if (RateCourse::AreEqual(rate, expected)) continue;
      MarkViolated(facts, call, verdict);
      const std::string what =
          "the learning rate of group " + std::to_string(group) + " at step " +
          std::to_string(moment.step) + " of the optimizer is ";
      verdict->finding.expected = what + nlohmann::json(expected).dump();
      verdict->finding.seen = what + nlohmann::json(rate).dump();
      return;
    }
    if (missing) {
      MarkUnknown("the learning rate was not recorded on " + facts.Name(),
                  verdict);
    }
  }

  const Judged* const judged_;
  std::map<std::pair<size_t, uint32_t>, Begin> begun_;  // by rule and optimizer
};

}  // namespace

const Relation* RateSchedule() {
  static const auto* const kRelation =
      new ProcessRelation<ScheduleSpec, SchedulesOfProcess>(
          "RateSchedule", NewSeenGenerator<SchedulesSeen>);
  return kRelation;
}

}  // namespace traincheck
