// A training program in miniature: what an agent would record of a rank that
// trains a small model, healthy or with one of the errors that the rules are
// made for. Digests stand for values: they change when an update changes
// them, and are equal on two ranks when their values are.
#ifndef TRAINCHECK_INVARIANTS_TESTING_SYNTHETIC_TRAINING_H_
#define TRAINCHECK_INVARIANTS_TESTING_SYNTHETIC_TRAINING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

enum class TrainingFault {
  kNone,
  kBypassWrapper,    // the forward goes around DDP: replicas drift
  kWrongParameters,  // the optimizer holds the frozen parameters only
  kNoClear,          // gradients are never cleared
  kNoSyncOnOneRank,  // one rank's gradients differ
  kNoGradient,       // the loss is cut off from the parameters
};

struct TrainingOptions {
  int32_t ranks = 2;
  bool wrapped = true;  // in DDP
  bool loader = true;
  std::string model = "Net";
  std::string layer = "torch.nn.modules.conv.Conv2d";
  // "torch.optim.adam.Adam".
  std::string optimizer = "torch.optim.adam.Adam";
  int steps = 6;
  int micro_batches = 1;  // backwards a step
  int warm_up = 0;        // steps with lr 0
  double rate = 0.1;      // of the first step that is not warm-up
  double rate_decay = 1;  // a step's rate by that of the step before
  int evaluate_every = 0;
  bool unused_parameter = false;  // never gets a gradient
  bool frozen_backbone = false;   // not held by the optimizer
  bool tied = false;              // two names with one value
  bool clip = false;
  TrainingFault fault = TrainingFault::kNone;
  int fault_step = 0;       // kBypassWrapper, kNoSyncOnOneRank begin here
  int32_t fault_rank = -1;  // of kNoSyncOnOneRank; -1: the last
  // Steps of which one is recorded in full; power of two.
  int sample_every = 1;
  bool ranks_sample_alike = true;  // else each half as often as the one before
  uint32_t attempt = 0;
  int steps_per_batch = 1;  // how much a stored batch holds
  uint64_t seed = 1;
};

// The stored batches of one rank.
std::vector<StoredBatch> TrainRank(const TrainingOptions& options,
                                   int32_t rank);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TESTING_SYNTHETIC_TRAINING_H_
