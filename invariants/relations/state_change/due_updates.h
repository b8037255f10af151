// Is a variable asked to change in a step of the process? One that an optimizer
// holds is, if that optimizer has made a step of its own and its learning rate
// is not 0; any other (a buffer, a copy) always is.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_DUE_UPDATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_DUE_UPDATES_H_

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invariants/facts/process_facts.h"
#include "invariants/facts/tri.h"

namespace traincheck {

class DueUpdates {
 public:
  void OnDefinition(RecordType type) { stale_ |= type == RecordType::kHoldDef; }
  // A step of the process has closed.
  void OnStepClosed(const ProcessFacts& facts);
  // In the step that has closed last. Unknown where the optimizer's own clock
  // or its learning rate is.
  Tri IsDue(const ProcessFacts& facts, uint32_t variable);

  void Fields(Archive& archive);

 private:
  std::map<uint32_t, Tri> stepped_;  // in the last step, by optimizer
  std::map<uint32_t, std::optional<uint64_t>> steps_;
  // Optimizers and groups that hold a variable; not saved.
  std::unordered_map<uint32_t, std::vector<std::pair<uint32_t, uint32_t>>>
      holders_;
  bool stale_ = true;  // holders_
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_DUE_UPDATES_H_
