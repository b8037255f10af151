// What changed from one step of the process to the next, variable by variable,
// as the records at step_end tell.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STEP_END_CHANGES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STEP_END_CHANGES_H_

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_map>

#include "invariants/facts/tri.h"
#include "invariants/relations/state_change/due_updates.h"

namespace traincheck {

// Of one variable.
struct StepChange {
  uint64_t step = 0;  // that has closed
  Tri changed = Tri::kUnknown;
  Tri due = Tri::kUnknown;  // see DueUpdates
  // Over how many steps: those not recorded lie in between.
  uint64_t steps = 1;
  // Has anything else of the process changed, in this step or the one before?
  bool others_changed = false;
  std::string reason;  // why `changed` is unknown
};

class StepEndChanges {
 public:
  void OnDefinition(RecordType type) { due_.OnDefinition(type); }
  // Call it for each state record. nullopt: it is of no such point, or is the
  // first of its variable.
  std::optional<StepChange> OnState(const ProcessFacts& facts,
                                    const StateEvent& event);

  void Fields(Archive& archive);

 private:
  struct Last {
    std::optional<uint64_t> data;
    uint64_t step = 0;
    uint64_t gaps = 0;
    void Fields(Archive& archive);
  };

  DueUpdates due_;
  uint64_t step_ = 0;            // whose records come now
  uint64_t changed_before_ = 0;  // variables, in the step before
  uint64_t changed_now_ = 0;
  std::unordered_map<uint32_t, Last> last_;  // by variable
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_STEP_END_CHANGES_H_
