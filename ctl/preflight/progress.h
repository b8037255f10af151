// How far the ranks of a training are that is to end after a few steps, and
// when somebody has to help it: a launcher may wait for ever, or start its
// ranks again.
//
// Threads: compatible.
#ifndef TRAINCHECK_CTL_PREFLIGHT_PROGRESS_H_
#define TRAINCHECK_CTL_PREFLIGHT_PROGRESS_H_

#include <chrono>
#include <cstdint>
#include <functional>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// Has every rank of an attempt of the run closed so many steps? A process that
// ended before is none that anybody waits for where another has its place.
bool AllReached(const v1::Run& run, uint64_t steps);

// Has a rank of the run ended after so many steps, as it was to? Others may
// then fail that wait for it: ranks of a training need not make the same steps.
bool AnyEndedThere(const v1::Run& run, uint64_t steps);

// Ends a training that goes on although its ranks are through: SIGTERM 10 s
// after all have ended, or a minute after all have closed their last step,
// SIGKILL 10 s later.
class StopOverseer {
 public:
  using Time = std::chrono::milliseconds;

  struct Dependencies {
    std::function<absl::StatusOr<v1::Run>()> get_run;
    std::function<Time()> now;  // monotonic
  };

  StopOverseer(uint64_t steps, Dependencies dependencies);

  // The signal that the training has to get now, or 0. The server is asked once
  // a second.
  int SignalDue();

  // Has the training got one?
  bool has_ended_it() const { return terminated_at_.has_value(); }

 private:
  void Look(Time now);

  const uint64_t steps_;
  const Dependencies dependencies_;
  Time next_look_{0};
  // Since when all have closed their last step, and since when all have ended.
  std::optional<Time> reached_, ended_;
  std::optional<Time> terminated_at_, killed_at_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_PROGRESS_H_
