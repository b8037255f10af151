#include "agent/capture/tick_clock.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

// Runs past the calibration and compares with the clock that it replaces.
TEST(TickClock, StaysWithTheMonotonicClock) {
  const uint64_t start_us = MonotonicNs() / 1000;
  uint64_t last_us = NowUs();
  while (MonotonicNs() / 1000 < start_us + 400'000) {
    CalibrateTicks();
    const uint64_t before_us = MonotonicNs() / 1000;
    const uint64_t now_us = NowUs();
    const uint64_t after_us = MonotonicNs() / 1000;
    // A millisecond for the scale's error; it would be hours if it were wrong.
    ASSERT_GE(now_us + 1000, before_us);
    ASSERT_LE(now_us, after_us + 1000);
    ASSERT_GE(now_us + 1000, last_us);
    last_us = now_us;
  }
}

}  // namespace
}  // namespace traincheck
