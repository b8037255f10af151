// The same records as of a process whose tensors lie on a device: digests of
// states come later than the states, those of gradients with what their
// statistics say of NaN and infinities.
#ifndef TRAINCHECK_INVARIANTS_TESTING_DEFERRED_STATES_H_
#define TRAINCHECK_INVARIANTS_TESTING_DEFERRED_STATES_H_

#include <cstdint>
#include <random>
#include <vector>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

struct DeferOptions {
  // Of a hundred digests, so many come later, and so many of these never.
  uint32_t percent_deferred = 100;
  uint32_t percent_lost = 0;
  // So many batches later, at most.
  uint32_t max_lag = 3;
};

// Positions move; holes between batches stay as large as they were.
std::vector<StoredBatch> DeferStates(const std::vector<StoredBatch>& batches,
                                     const DeferOptions& options,
                                     std::mt19937_64* random);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TESTING_DEFERRED_STATES_H_
