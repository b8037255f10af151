// The two clocks that records carry, in nanoseconds. Threads: any.
#ifndef TRAINCHECK_AGENT_CAPTURE_CLOCK_H_
#define TRAINCHECK_AGENT_CAPTURE_CLOCK_H_

#include <time.h>

#include <cstdint>

namespace traincheck::agent {

inline uint64_t ClockNs(clockid_t clock) {
  timespec now = {};
  clock_gettime(clock, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 +
         static_cast<uint64_t>(now.tv_nsec);
}
inline uint64_t MonotonicNs() { return ClockNs(CLOCK_MONOTONIC); }
inline uint64_t RealtimeNs() { return ClockNs(CLOCK_REALTIME); }

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CLOCK_H_
