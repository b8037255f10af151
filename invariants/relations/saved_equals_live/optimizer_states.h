// States of optimizers in what was read: what an optimizer's state_dict gives,
// under any prefix.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_OPTIMIZER_STATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_OPTIMIZER_STATES_H_

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "invariants/relations/saved_equals_live/saved_models.h"
#include "invariants/trace/archive.h"

namespace traincheck {

struct OptimizerStates {
  // Digests of the tensors of each; of those that have any.
  std::vector<std::set<uint64_t>> states;
  // Beside them lie tensors that may be weights.
  bool holds_weights = false;

  void Fields(Archive& archive);
};

OptimizerStates FindOptimizerStates(const std::vector<SavedEntry>& entries);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_SAVED_EQUALS_LIVE_OPTIMIZER_STATES_H_
