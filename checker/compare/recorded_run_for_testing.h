// What one process of a small training records, with one fault from a step on.
// Two such recordings without a fault are the same run.
#ifndef TRAINCHECK_CHECKER_COMPARE_RECORDED_RUN_FOR_TESTING_H_
#define TRAINCHECK_CHECKER_COMPARE_RECORDED_RUN_FOR_TESTING_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

enum class RunFault {
  kNone,
  kHeld,        // the optimizer holds no bias
  kRate,        // another learning rate
  kWeights,     // something writes the weight between two steps
  kMode,        // the model is in evaluation mode
  kGenerator,   // other random numbers
  kUnseeded,    // the same for good, and nobody draws from the generator
  kData,        // other batches
  kNoClear,     // one call of zero_grad is left out
  kOrder,       // gradients are cleared after the backward
  kArgument,    // another argument of relu
  kResult,      // relu returns another number
  kCollective,  // a collective of another group
  kGradient,    // one gradient
  kUpdate,      // what the optimizer makes of the same gradients
  kCheckpoint,  // what is saved
};

struct RecordedRunOptions {
  int steps = 6;
  RunFault fault = RunFault::kNone;
  int fault_step = 3;
  uint64_t steps_per_batch = 1;
  // Ids and storages as another process would give them.
  bool other_ids = false;
  bool records_relu = true;
  std::optional<int> lost_in;  // records of this step are missing
  // Where records are missing, the marks are that less is recorded behind it:
  // no relu, and if steps are sampled, the skeleton alone.
  bool less_behind = false;
  std::optional<int> skeleton_until;  // steps below it are not sampled
  std::optional<int> unreadable_in;   // digests of this step
};

std::vector<StoredBatch> Record(const RecordedRunOptions& options);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_RECORDED_RUN_FOR_TESTING_H_
