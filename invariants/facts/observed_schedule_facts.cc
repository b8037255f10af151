#include "invariants/facts/observed_rows.h"

namespace traincheck {
namespace {

constexpr char kAgainstMetric[] = "schedule.against_metric";
constexpr char kCycleWaits[] = "schedule.cycle_waits";
constexpr char kEarly[] = "schedule.early";
constexpr char kLastEpochApart[] = "schedule.last_epoch_apart";
constexpr char kMetricsApart[] = "schedule.metrics_apart";
constexpr char kOutruns[] = "schedule.outruns";
constexpr char kUndone[] = "schedule.undone";
constexpr char kMergesRates[] = "schedule.merges_rates";
constexpr char kNotLoaded[] = "schedule.state_not_loaded";
constexpr char kNotSaved[] = "schedule.state_not_saved";
constexpr char kRateAsFactor[] = "schedule.rate_as_factor";
constexpr char kCountsBatches[] = "schedule.counts_batches";
constexpr char kSlowWarmUp[] = "schedule.slow_warm_up";
constexpr char kRateReset[] = "schedule.rate_reset";
constexpr char kRateVanishes[] = "schedule.rate_vanishes";
constexpr char kEndsInFirstPass[] = "schedule.ends_in_first_pass";
constexpr char kMilestonesEarly[] = "schedule.milestones_in_first_pass";
constexpr char kRisesAgain[] = "schedule.rises_again";
constexpr char kAllOnOne[] = "schedule.all_on_one";
constexpr char kUnused[] = "schedule.unused";

// What schedulers count, and what becomes of the rates that they set. T_max,
// milestones and the like count calls of step(): a number that was meant in
// epochs ends early where step() is called with each batch, and one in steps
// ends late where it is called once an epoch.
std::vector<Fact> OfCounts() {
  return {
      ScheduleRow<kEndsInFirstPass>(
          "its CosineAnnealingLR ended within the first pass over the data, "
          "and has gone up and down since",
          "its CosineAnnealingLR does not end within the first pass over the "
          "data",
          20),
      ScheduleRow<kMilestonesEarly>(
          "the last milestone of its schedule was passed within the first pass "
          "over the data, long ago",
          "the milestones of its schedule are not all passed within the first "
          "pass over the data",
          20),
      // Blames the line that steps: the schedule itself is as it should be.
      ScheduleRow<kOutruns>(
          "its learning rates are 0, and its scheduler was stepped several "
          "times between two of its steps",
          "its learning rates are not 0 because its scheduler is stepped too "
          "often",
          20, Blamed::kSchedulerStep),
      // Some schedulers multiply the rate that they find, others compute it
      // from the initial one: side by side, the latter undo what the former
      // have done (undone_rates.py).
      ScheduleRow<kUndone>(
          "one of its schedulers throws away what another one has done to the "
          "rates",
          "none of its schedulers throws away what another one has done to the "
          "rates",
          20),
      ScheduleRow<kLastEpochApart>(
          "a scheduler that was made with a last_epoch has undone the rates "
          "that were loaded",
          "a scheduler that was made with a last_epoch goes on with the rates "
          "that were loaded",
          20),
      ScheduleRow<kSlowWarmUp>(
          "its scheduler warms up over ten calls of step() and more, and is "
          "called once in many steps",
          "a warm-up counted in steps is stepped at every optimizer step", 13,
          Blamed::kSchedulerStep),
      // The user's code says what a length counts (counted_lengths.py): a
      // number alone may be one of epochs.
      ScheduleRow<kCountsBatches>(
          "its scheduler was given a number of batches, and is stepped once a "
          "pass over the data",
          "a schedule whose length counts batches is stepped more often than "
          "once a pass",
          26, Blamed::kSchedulerStep),
      // A rank's own share of the data gives another metric, so rates fall at
      // different times and replicas part (plateau_metrics.py).
      ScheduleRow<kMetricsApart>(
          "its ReduceLROnPlateau is given another metric than that of another "
          "rank, and has set another rate",
          "its ReduceLROnPlateau sets the same rates on all ranks", 20,
          Blamed::kSchedulerStep),
  };
}

// How schedulers go with the steps of their optimizer, and over a resume
// (schedulers.py, schedule_lines.py, resumed_schedules.py).
std::vector<Fact> OfSchedules() {
  return {
      ScheduleRow<kEarly>("its scheduler was stepped before its first step",
                          "its scheduler was not stepped before its first step",
                          1, Blamed::kSchedulerStep),
      ScheduleRow<kRateReset>(
          "a scheduler that goes on has undone the rates that were loaded",
          "no scheduler that goes on has undone the rates that were loaded"),
      // An OptimizerRow: what multiplies the rate need not be a scheduler, so
      // none is blamed.
      OptimizerRow<kRateVanishes>("a rate of its groups has been multiplied by "
                                  "one factor in each step, "
                                  "and next to nothing is left of it",
                                  "no rate of its groups is multiplied by one "
                                  "factor in each step until "
                                  "next to nothing is left",
                                  14),
      ScheduleRow<kCycleWaits>(
          "its OneCycleLR is not stepped after each of its steps",
          "its OneCycleLR is stepped after each of its steps"),
      ScheduleRow<kRisesAgain>(
          "its cosine schedule has passed its end, and the rates rise again",
          "its cosine schedule has not passed its end", 4),
      ScheduleRow<kMergesRates>("one learning rate is set for groups that "
                                "were made with different ones",
                                "groups that were made with different "
                                "learning rates keep different ones",
                                4),
      // ReduceLROnPlateau takes its metric for a loss (mode="min") unless it is
      // given another mode: a rising accuracy is no improvement to it.
      ScheduleRow<kAgainstMetric>(
          "its ReduceLROnPlateau waits for its metric in the wrong direction",
          "its ReduceLROnPlateau waits for its metric in the right direction",
          7),
      ScheduleRow<kRateAsFactor>(
          "the function of its LambdaLR gives the rate, which is multiplied by "
          "the rate",
          "the function of its LambdaLR gives a factor", 9),
      ScheduleRow<kNotLoaded>(
          "it goes on from a loaded state, and its schedule begins anew "
          "although "
          "its state was read",
          "it goes on from a loaded state, and so does its schedule", 9),
      ScheduleRow<kNotSaved>(
          "it goes on from a file that has no state of its schedule, which "
          "begins anew",
          "it goes on from a file, and its schedule from where it was", 9),
      ScheduleRow<kAllOnOne>(
          "it has two schedulers of one kind, and another optimizer has none",
          "it has at most one scheduler of a kind", 10),
      ScheduleRow<kUnused>(
          "none of its schedulers has been stepped in two passes over the data",
          "every scheduler is stepped at least once in two epochs"),
  };
}

}  // namespace

std::vector<Fact> ObservedScheduleFacts() {
  std::vector<Fact> all = OfSchedules();
  for (const Fact& fact : OfCounts()) all.push_back(fact);
  return all;
}

}  // namespace traincheck
