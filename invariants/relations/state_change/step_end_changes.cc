#include "invariants/relations/state_change/step_end_changes.h"

#include "invariants/facts/tri.h"
#include "invariants/relations/state_change/due_updates.h"

namespace traincheck {

std::optional<StepChange> StepEndChanges::OnState(const ProcessFacts& facts,
                                                  const StateEvent& event) {
  if (event.point != StatePoint::kStepEnd || !event.variable) {
    return std::nullopt;
  }
  const bool has_data = event.Has(kHasData) && !event.Has(kUnreadable);
  // A record of something else than content.
  if (!has_data && !event.Has(kUnreadable)) return std::nullopt;
  const uint64_t open = facts.clock().step();
  if (open != step_) {
    step_ = open;
    changed_before_ = changed_now_;
    changed_now_ = 0;
    // With the first record of the step: there is no event that says that it
    // has closed for all variables.
    due_.OnStepClosed(facts);
  }
  // The records of step_end come after the step has closed, when the clock is
  // in the next one.
  const uint64_t closed = open > 0 ? open - 1 : 0;
  const auto [found, first] = last_.try_emplace(event.variable_id);
  Last last = found->second;
  found->second = {has_data ? std::optional(event.data) : std::nullopt, closed,
                   facts.gaps()};
  // A second record in one step replaces the first and is not a change from
  // step to step.
  if (first || last.step == closed) return std::nullopt;
  StepChange change;
  change.step = closed;
  change.steps = closed - last.step;
  change.due = due_.IsDue(facts, event.variable_id);
  if (last.gaps != facts.gaps()) {
    change.reason = facts.gap_reason();
  } else if (!has_data || !last.data) {
    change.reason =
        event.variable->FullName() + " could not be read on " + facts.Name();
  } else {
    change.changed = ToTri(event.data != *last.data);
  }
  // Not counting the variable itself, which may be among those of the step
  // before. Two steps, since records of this one are still to come.
  change.others_changed =
      changed_before_ + changed_now_ > (change.changed == Tri::kYes ? 1 : 0);
  changed_now_ += change.changed == Tri::kYes;
  return change;
}

void StepEndChanges::Fields(Archive& archive) {
  archive(due_, step_, changed_before_, changed_now_, last_);
}

void StepEndChanges::Last::Fields(Archive& archive) {
  archive(data, step, gaps);
}

}  // namespace traincheck
