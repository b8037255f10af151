// The time that the agent takes of the program's, in ticks of a clock of which
// only ratios mean anything: hooks and calls that tell digests or autograd's
// view of tensors are timed, each; of the other recorded calls every kStride-th
// stands for all. Not in it: the wrappers' own frames, what our memory traffic
// costs the program's, the relay.
//
// Threads: GIL held at the ends of what is timed.
#ifndef TRAINCHECK_AGENT_CAPTURE_OWN_TIME_H_
#define TRAINCHECK_AGENT_CAPTURE_OWN_TIME_H_

#include <algorithm>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "agent/capture/clock.h"

namespace traincheck::agent {

inline uint64_t Ticks() {
#if defined(__x86_64__)
  return __rdtsc();
#else
  return MonotonicNs();
#endif
}

inline constinit uint64_t g_own_ticks = 0;

// Times its scope.
class OwnTime {
 public:
  explicit OwnTime(bool counts = true) : begin_(counts ? Ticks() : 0) {}
  ~OwnTime() {
    if (begin_ != 0) g_own_ticks += Ticks() - begin_;
  }
  OwnTime(const OwnTime&) = delete;
  OwnTime& operator=(const OwnTime&) = delete;

 private:
  const uint64_t begin_;
};

// Times its scope or, where it is one of many, every so many-th in the place of
// all. A prime, so that it falls on each call of a loop in turn.
class OwnTimeOfCall {
 public:
  static constexpr uint32_t kStride = 61;
  // What takes longer was interrupted: 61 such times would be a step's.
  static constexpr uint64_t kMaxTicks = 30'000;

  explicit OwnTimeOfCall(bool one_of_many) {
    weight_ = 1;
    if (one_of_many) {
      static constinit uint32_t calls = 0;
      if (++calls != kStride) return;
      calls = 0;
      weight_ = kStride;
    }
    begin_ = Ticks();
  }
  ~OwnTimeOfCall() {
    if (begin_ == 0) [[likely]] {
      return;
    }
    const uint64_t ticks = Ticks() - begin_;
    g_own_ticks += weight_ == 1 ? ticks : weight_ * std::min(ticks, kMaxTicks);
  }
  OwnTimeOfCall(const OwnTimeOfCall&) = delete;
  OwnTimeOfCall& operator=(const OwnTimeOfCall&) = delete;

 private:
  uint64_t begin_ = 0;
  uint64_t weight_;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_OWN_TIME_H_
