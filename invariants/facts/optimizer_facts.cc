// Facts of an optimizer and of the span since its last step.
#include "invariants/facts/accumulated_means.h"
#include "invariants/facts/fact.h"
#include "invariants/facts/grad_scaling.h"
#include "invariants/facts/optimizer_books.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/process_facts.h"
#include "invariants/facts/training_modes.h"
#include "invariants/trace/events.h"

namespace traincheck {

namespace {

const OptimizerBooks& Books(const FactSubject& subject) {
  return subject.facts->optimizer_books();
}

FactValue StepIndex(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  return steps ? FactValue(static_cast<double>(*steps)) : FactValue();
}

FactValue HasStepped(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  if (!steps) return {};
  return *steps > 0;
}

// Do backwards give gradients to what the optimizer holds? Master copies in
// float32 are given their gradients by hand, anew for each step, and need no
// clearing.
bool BackwardsReach(const FactSubject& subject) {
  const Optimizer* optimizer =
      subject.facts->ownership().Find(subject.optimizer);
  // It is not known what it holds, so backwards may reach it.
  if (!optimizer) return true;
  for (const HeldVariable& held : optimizer->held) {
    const VariableState* state = subject.facts->Variable(held.variable);
    if (state && state->got_grad()) return true;
  }
  return Books(subject).MissedBackwardSince(subject.optimizer);
}

// At its first step there is nothing to clear.
bool HasStepBefore(const FactSubject& subject) {
  const auto steps = subject.facts->clock().OptimizerSteps(subject.optimizer);
  // A number that is not known is not 0 either: the fact is asked for, and is
  // unknown where the missing records matter.
  return subject.optimizer != 0 && steps != uint64_t{0} &&
         BackwardsReach(subject);
}

FactValue GradsClearedSince(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  return ToFactValue(Books(subject).ClearedSince(subject.optimizer));
}

FactValue Backwards(const FactSubject& subject) {
  if (subject.optimizer == 0) return {};
  const auto backwards = Books(subject).BackwardsSince(subject.optimizer);
  return backwards ? FactValue(static_cast<double>(*backwards)) : FactValue();
}

// Schedules end with a step or two at 0, and restarts pass by it.
constexpr uint64_t kStepsWithoutRate = 8;

// WithoutRateFor has a value once some step had a rate above 0: see CountRates.
bool HadRate(const FactSubject& subject) {
  return Books(subject)
      .WithoutRateFor(subject.optimizer, kStepsWithoutRate)
      .has_value();
}

FactValue RatesEnded(const FactSubject& subject) {
  return ToFactValue(Books(subject)
                         .WithoutRateFor(subject.optimizer, kStepsWithoutRate)
                         .value_or(Tri::kUnknown));
}

// A float32 counts to 16 million; bfloat16 stops at 256.
constexpr double kEnoughBits = 24;

// Optimizers without state (plain SGD) keep no counter.
bool HasCounter(const FactSubject& subject) {
  return Books(subject).CounterBits(subject.optimizer).has_value();
}

FactValue CountsOn(const FactSubject& subject) {
  const auto bits = Books(subject).CounterBits(subject.optimizer);
  return bits ? FactValue(*bits >= kEnoughBits) : FactValue();
}

// Times in a row from which on a schedule that runs apart from its optimizer is
// reported. What happens once is a resume, or another phase of the training.
constexpr uint64_t kHabit = 3;

bool HasSchedule(const FactSubject& subject) {
  return Books(subject).ScheduleIdle(subject.optimizer).has_value();
}

FactValue ScheduleIsIdle(const FactSubject& subject) {
  const auto idle = Books(subject).ScheduleIdle(subject.optimizer);
  return idle ? FactValue(*idle >= kHabit) : FactValue();
}

bool IsScheduled(const FactSubject& subject) {
  return Books(subject).FastScheduleFor(subject.optimizer, kHabit).has_value();
}

FactValue ScheduleIsFast(const FactSubject& subject) {
  return ToFactValue(Books(subject)
                         .FastScheduleFor(subject.optimizer, kHabit)
                         .value_or(Tri::kUnknown));
}

bool HadTies(const FactSubject& subject) {
  return Books(subject).TiesLost(subject.optimizer).has_value();
}

FactValue TiesKept(const FactSubject& subject) {
  const auto lost = Books(subject).TiesLost(subject.optimizer);
  return lost ? FactValue(*lost == 0) : FactValue();
}

// Only a step that accumulates several backwards, all of losses that are means,
// can mix different numbers of targets.
bool AddsMeans(const FactSubject& subject) {
  return subject.optimizer != 0 &&
         subject.facts->accumulated_means().Alike().has_value();
}

FactValue MeansAlike(const FactSubject& subject) {
  const auto alike = subject.facts->accumulated_means().Alike();
  return alike ? FactValue(*alike) : FactValue();
}

// Without a backward since the last step nothing was trained. A number of
// backwards that is not known counts as some: the fact is then unknown.
bool TrainsAgain(const FactSubject& subject) {
  const Optimizer* optimizer =
      subject.facts->ownership().Find(subject.optimizer);
  return optimizer && subject.facts->training_modes().Retrains(*optimizer) &&
         Books(subject).BackwardsSince(subject.optimizer) != uint64_t{0};
}

FactValue TrainsAsBefore(const FactSubject& subject) {
  const Optimizer* optimizer =
      subject.facts->ownership().Find(subject.optimizer);
  if (!optimizer || !Books(subject).BackwardsSince(subject.optimizer)) {
    return {};
  }
  return ToFactValue(subject.facts->training_modes().AsBefore(*optimizer));
}

// In a program without a GradScaler the fact could not be otherwise, and rules
// on it would judge every clipping and step.
bool ScalesGradients(const FactSubject& subject) {
  return subject.call && subject.facts->grad_scaling().used();
}

// A call that is not of one optimizer (clipping) is given parameters, and
// nothing says whose: the fact is known only if it is the same for all
// optimizers.
FactValue GradScaled(const FactSubject& subject) {
  if (!subject.call) return {};
  const GradScaling& scaling = subject.facts->grad_scaling();
  const uint32_t ring = subject.call->ring;
  if (subject.optimizer != 0) {
    return ToFactValue(scaling.Scaled(ring, subject.optimizer));
  }
  FactValue all;
  for (const auto& [key, held] : subject.facts->definitions().holds()) {
    const FactValue one = ToFactValue(scaling.Scaled(ring, key.first));
    if (!IsKnown(one) || (IsKnown(all) && all != one)) return {};
    all = one;
  }
  return all;
}

FactValue BackwardScale(const FactSubject& subject) {
  const auto scale = subject.facts->grad_scaling().scale();
  return scale ? FactValue(*scale) : FactValue();
}

constexpr auto kOf = FactOf::kOptimizer;

// What follows from calls and scalars around the steps. Rows are as in
// call_facts.cc.
std::vector<Fact> OfSteps() {
  return {
      {"opt.step_index", kOf, FactType::kNumber, FactNeed::kNone,
       "the number of the optimizer's steps before", nullptr,
       "after missing records", StepIndex},
      {"opt.has_stepped", kOf, FactType::kBool, FactNeed::kNone,
       "the optimizer has stepped before",
       "the optimizer has not stepped before", "after missing records",
       HasStepped},
      {"opt.grads_cleared_since", kOf, FactType::kBool, FactNeed::kGradients,
       "gradients were cleared since its last step",
       "gradients were not cleared since its last step",
       "without an optimizer, and where a backward was not sampled or records "
       "are missing since then",
       GradsClearedSince, HasStepBefore},
      {"step.backwards", kOf, FactType::kNumber, FactNeed::kNone,
       "the number of backwards since its last step", nullptr,
       "without an optimizer, and where records are missing since then",
       Backwards},
      {"opt.rates_ended", kOf, FactType::kBool, FactNeed::kNone,
       "its learning rates have been 0 for 8 steps and more",
       "its learning rates have not been 0 for 8 steps and more",
       "where its rates were not recorded", RatesEnded, HadRate},
      {"opt.counts_on", kOf, FactType::kBool, FactNeed::kNone,
       "its step counter has a type that is precise enough to go on counting",
       "its step counter has a type that is not precise enough to go on "
       "counting",
       "where it keeps none", CountsOn, HasCounter},
      {"schedule.idle", kOf, FactType::kBool, FactNeed::kNone,
       "a scheduler is stepped whose optimizer does not step, while others do",
       "each scheduler that is stepped belongs to an optimizer that steps",
       "after missing records", ScheduleIsIdle, HasSchedule,
       /*at_end=*/true, /*looked_at_since=*/0, Blamed::kScheduler},
  };
}

// What follows from schedules, modes and scalers, between the steps.
std::vector<Fact> OfTrainings() {
  return {
      {"schedule.fast", kOf, FactType::kBool, FactNeed::kNone,
       "its scheduler is stepped more than once between two of its steps",
       "its scheduler is stepped at most once between two of its steps",
       "after missing records", ScheduleIsFast, IsScheduled, /*at_end=*/false,
       /*looked_at_since=*/0, Blamed::kSchedulerStep},
      {"opt.ties_kept", kOf, FactType::kBool, FactNeed::kNone,
       "weights that were tied where they came from are one tensor",
       "weights that were tied where they came from are separate tensors",
       "where none were tied", TiesKept, HadTies, /*at_end=*/true},
      {"step.means_alike", kOf, FactType::kBool, FactNeed::kNone,
       "the losses that it accumulated are means over equally many targets",
       "the losses that it accumulated are means over different numbers of "
       "targets",
       "where a backward was not looked at", MeansAlike, AddsMeans,
       /*at_end=*/false, /*looked_at_since=*/1},
      {"opt.trains_as_before", kOf, FactType::kBool, FactNeed::kNone,
       "its models train in training mode, as they did before",
       "one of its models trains in evaluation mode, although it trained in "
       "training mode before",
       "where records are missing since its last step", TrainsAsBefore,
       TrainsAgain, /*at_end=*/true, /*looked_at_since=*/0,
       Blamed::kSwitchOfMode},
      {"grad.scaled", kOf, FactType::kBool, FactNeed::kScaler,
       "gradients are still multiplied by a GradScaler's scale",
       "gradients are not multiplied by a GradScaler's scale",
       "where calls of the scaler were not recorded, or optimizers differ",
       GradScaled, ScalesGradients},
      {"backward.scale", kOf, FactType::kNumber, FactNeed::kNone,
       "the scale of the GradScaler", nullptr,
       "before its first update, and where it is kept on a GPU", BackwardScale},
  };
}

}  // namespace

const std::vector<Fact>& OptimizerFacts() {
  static const auto* const kFacts = [] {
    auto* const all = new std::vector<Fact>(OfSteps());
    for (const Fact& fact : OfTrainings()) all->push_back(fact);
    return all;
  }();
  return *kFacts;
}

}  // namespace traincheck
