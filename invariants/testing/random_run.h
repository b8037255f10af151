// Runs that a seed decides: several ranks, healthy or faulty, in one attempt
// or two, some of them killed, with holes in their records or never connected;
// and the same records in other batches.
#ifndef TRAINCHECK_INVARIANTS_TESTING_RANDOM_RUN_H_
#define TRAINCHECK_INVARIANTS_TESTING_RANDOM_RUN_H_

#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "invariants/trace/stored_batch.h"

namespace traincheck {

struct RandomProcess {
  uint32_t attempt = 0;
  int32_t rank = 0;
  std::vector<StoredBatch> batches;
  ProcessEnd end = ProcessEnd::kClean;
  bool hole = false;  // a batch is missing
};

struct RandomRun {
  std::string about;  // for people: what was drawn
  int32_t world = 0;
  std::vector<RandomProcess> processes;
  // Attempt and rank of members that never connect.
  std::vector<std::pair<uint32_t, int32_t>> absent;
};

RandomRun DrawRun(uint64_t seed);

// Cuts batches in pieces, each with all records up to some time.
std::vector<StoredBatch> Split(const std::vector<StoredBatch>& batches,
                               std::mt19937_64* random);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TESTING_RANDOM_RUN_H_
