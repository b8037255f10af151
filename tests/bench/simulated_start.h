// One start of a simulated job under the id of its run: all ranks begin, train
// at a pace and end, in order or without a word. Ranks of a start name it by a
// nonce, as those of a process group do, so that the next start is the next
// attempt.
//
// What goes wrong with a stream ends the program, as in simulated_job.h.
//
// Threads: one object, one thread.
#ifndef TRAINCHECK_TESTS_BENCH_SIMULATED_START_H_
#define TRAINCHECK_TESTS_BENCH_SIMULATED_START_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "tests/bench/simulated_job.h"

namespace traincheck::server {

struct StartPlan {
  uint32_t number = 0;  // of the start, from 0
  TrainingOptions training;
  bool in_order = true;  // else nobody says goodbye
};

class SimulatedStart {
 public:
  // Connects all ranks with the run, the set and the role of `hello`.
  SimulatedStart(const Channels& channels, const v1::Hello& hello,
                 const StartPlan& plan);

  // One step of all ranks every `pace`; `after_step` is called when it is
  // stored.
  void Train(std::chrono::milliseconds pace,
             const std::function<void()>& after_step);
  void End();

  // Of what was sent so far.
  uint64_t records() const { return records_; }
  // The longest time from the first batch of a step until all were stored.
  std::chrono::milliseconds slowest() const { return slowest_; }

 private:
  struct Rank {
    std::vector<v1::IngestRequest> requests;
    std::map<uint32_t, uint64_t> ring_records;  // sent
    std::unique_ptr<RankStream> stream;
  };

  void SendAll(size_t round);
  void Send(Rank* rank, size_t round);

  const StartPlan plan_;
  std::vector<Rank> ranks_;
  uint64_t records_ = 0;
  std::chrono::milliseconds slowest_{0};
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_TESTS_BENCH_SIMULATED_START_H_
