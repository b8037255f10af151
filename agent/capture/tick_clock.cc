#include "agent/capture/tick_clock.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace traincheck {

std::atomic<uint64_t> g_tick_scale{0};
uint64_t g_tick_start = 0;
uint64_t g_tick_start_us = 0;

#if defined(__x86_64__)
namespace {

// Long enough for an error of some millionths.
constexpr uint64_t kCalibrationUs = 100'000;

// Does the counter run at one rate, whatever the processor does?
bool RunsEvenly() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0) return false;
  return (d & (1u << 8)) != 0;
}

}  // namespace

void CalibrateTicks() {
  static const bool runs_evenly = RunsEvenly();
  if (!runs_evenly || g_tick_scale.load(std::memory_order_relaxed) != 0) return;
  const uint64_t ticks = __rdtsc();
  const uint64_t now_us = MonotonicNs() / 1000;
  if (g_tick_start == 0) {
    g_tick_start = ticks;
    g_tick_start_us = now_us;
    return;
  }
  const uint64_t passed_us = now_us - g_tick_start_us;
  if (passed_us < kCalibrationUs || ticks <= g_tick_start) return;
  const unsigned __int128 scaled = static_cast<unsigned __int128>(passed_us)
                                   << 32;
  g_tick_scale.store(static_cast<uint64_t>(scaled / (ticks - g_tick_start)),
                     std::memory_order_release);
}
#else
void CalibrateTicks() {}
#endif

}  // namespace traincheck
