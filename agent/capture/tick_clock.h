// Microseconds for the time fields of records, in a third of the time that
// clock_gettime takes: the processor's time-stamp counter, scaled. Until the
// scale is known (and on processors whose counter does not run evenly) it is
// clock_gettime.
//
// These times are for people and are deltas between ClockSyncs, which carry
// exact ones; so a scale that is off by some millionths does no harm.
//
// Threads: NowUs any; Calibrate externally synchronised (GIL held).
#ifndef TRAINCHECK_AGENT_CAPTURE_TICK_CLOCK_H_
#define TRAINCHECK_AGENT_CAPTURE_TICK_CLOCK_H_

#include <atomic>
#include <cstdint>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

#include "agent/capture/clock.h"

namespace traincheck::agent {

// Microseconds by 2^32 of one tick; 0: not known.
extern std::atomic<uint64_t> g_tick_scale;
extern uint64_t g_tick_start;     // counter at the start of the calibration
extern uint64_t g_tick_start_us;  // CLOCK_MONOTONIC then

// The counter and CLOCK_MONOTONIC, read at one moment.
struct ClockSample {
  uint64_t ticks = 0;  // in the middle of `gap`
  uint64_t ns = 0;
  // Ticks that the reading took: long where the thread was interrupted in it,
  // and the moment is not known better.
  uint64_t gap = 0;
};

// By how little of the time between them two samples may be off.
inline constexpr uint64_t kClockPrecision = 20'000;

inline bool IsSharp(const ClockSample& sample, uint64_t between_ticks) {
  return sample.gap <= between_ticks / kClockPrecision;
}

// g_tick_scale by two samples. REQUIRES: `end` has more ticks.
uint64_t TickScale(const ClockSample& start, const ClockSample& end);

// Starts the calibration, and ends it once enough time has gone by.
void CalibrateTicks();

// CLOCK_MONOTONIC in microseconds, nearly.
inline uint64_t NowUs() {
#if defined(__x86_64__)
  const uint64_t scale = g_tick_scale.load(std::memory_order_acquire);
  if (scale != 0) {
    const unsigned __int128 ticks = __rdtsc() - g_tick_start;
    return g_tick_start_us + static_cast<uint64_t>(ticks * scale >> 32);
  }
#endif
  return MonotonicNs() / 1000;
}

// Ticks() of own_time.h that go by in so many nanoseconds; 0 while that is not
// known.
inline uint64_t TicksOf(uint64_t ns) {
#if defined(__x86_64__)
  const uint64_t scale = g_tick_scale.load(std::memory_order_acquire);
  if (scale == 0) return 0;
  const unsigned __int128 us = static_cast<unsigned __int128>(ns) << 32;
  return static_cast<uint64_t>(us / 1000 / scale);
#else
  return ns;
#endif
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_TICK_CLOCK_H_
