// A job of simulated ranks that makes one step a second. Each rank's records
// come a few at a time, and are sent as relays send them: what has gathered for
// as long as the daemon asks, in one batch.
//
// What goes wrong ends the program as in simulated_job.h.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_TESTS_BENCH_PACED_JOB_H_
#define TRAINCHECK_TESTS_BENCH_PACED_JOB_H_

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "tests/bench/simulated_job.h"

namespace traincheck::server {

class PacedJob {
 public:
  PacedJob(const Channels& channels, const TrainingOptions& options,
           const v1::Hello& hello);
  ~PacedJob();

  uint64_t records() const { return records_; }
  // Batches that were sent.
  uint64_t batches() const;

  // Returns when the last record is stored.
  void Stream();
  void End();

 private:
  class Rank;

  // The pieces of the first `steps`, or of all that is left.
  void SendPieces(std::chrono::steady_clock::time_point begin, size_t steps);

  std::vector<std::unique_ptr<Rank>> ranks_;
  uint64_t records_ = 0;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_TESTS_BENCH_PACED_JOB_H_
