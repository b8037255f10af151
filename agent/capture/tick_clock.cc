#include "agent/capture/tick_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace traincheck::agent {

std::atomic<uint64_t> g_tick_scale{0};
uint64_t g_tick_start = 0;
uint64_t g_tick_start_us = 0;

// Fixed point, 32 bits behind the point: NowUs needs one multiplication and a
// shift.
uint64_t TickScale(const ClockSample& start, const ClockSample& end) {
  const unsigned __int128 us = (end.ns - start.ns) / 1000;
  return static_cast<uint64_t>((us << 32) / (end.ticks - start.ticks));
}

#if defined(__x86_64__)
namespace {

// Long enough for an error of some millionths.
constexpr uint64_t kCalibrationNs = 100'000'000;

// Does the counter run at one rate, whatever the processor does?
bool RunsEvenly() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0) return false;
  return (d & (1u << 8)) != 0;
}

// The clock is read between two readings of the counter: it belongs to their
// middle, and their distance bounds the error.
ClockSample TakeSample() {
  const uint64_t before = __rdtsc();
  const uint64_t ns = MonotonicNs();
  const uint64_t gap = __rdtsc() - before;
  return {before + gap / 2, ns, gap};
}

ClockSample g_start;

// Written while g_tick_scale is 0, so that no thread reads the start yet.
void Begin(const ClockSample& sample) {
  g_start = sample;
  g_tick_start = sample.ticks;
  g_tick_start_us = sample.ns / 1000;
}

}  // namespace

// Called at each ClockSync with the GIL. The first call only takes a sample;
// some later one, at least 100 ms after it, finds the scale.
void CalibrateTicks() {
  static const bool runs_evenly = RunsEvenly();
  if (!runs_evenly || g_tick_scale.load(std::memory_order_relaxed) != 0) return;
  const ClockSample now = TakeSample();
  if (g_start.ticks == 0) return Begin(now);
  if (now.ns < g_start.ns + kCalibrationNs || now.ticks <= g_start.ticks) {
    return;
  }
  const uint64_t between = now.ticks - g_start.ticks;
  if (!IsSharp(now, between)) return;  // interrupted: the next call tries again
  // So was the first one: it begins anew with this one.
  if (!IsSharp(g_start, between)) return Begin(now);
  // Release: who sees the scale sees where it begins.
  g_tick_scale.store(TickScale(g_start, now), std::memory_order_release);
}
#else
void CalibrateTicks() {}
#endif

}  // namespace traincheck::agent
