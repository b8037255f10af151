// When the server is told that a process lives and records nothing: what the
// process waits for may never come, and only time can say so.
//
// Threads: externally synchronised. It is told the time.
#ifndef TRAINCHECK_AGENT_RELAY_QUIET_WATCH_H_
#define TRAINCHECK_AGENT_RELAY_QUIET_WATCH_H_

#include <algorithm>
#include <chrono>

#include "agent/relay/limits.h"

namespace traincheck::agent {

class QuietWatch {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  // Is it to be told now? `last_records`: when some were last seen. Once true,
  // it is told.
  bool IsDue(TimePoint now, TimePoint last_records) {
    const auto quiet = now - last_records;
    if (quiet < kQuietAfter || quiet > kQuietForGood) return false;
    const TimePoint told = std::max(told_, last_records);
    // After a quarter more of the time: an hour takes some seventy batches.
    const auto pause = std::clamp<TimePoint::duration>(
        (told - last_records) / 4, kQuietAfter, kMaxQuietPause);
    if (now - told < pause) return false;
    told_ = now;
    return true;
  }

 private:
  TimePoint told_{};
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_RELAY_QUIET_WATCH_H_
