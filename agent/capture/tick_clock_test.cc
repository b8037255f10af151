#include "agent/capture/tick_clock.h"

#include <gtest/gtest.h>

namespace traincheck::agent {
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

// A thread that loses its processor between the two readings of a sample makes
// it blunt: such a one would scale all later times by a few hundredths.
TEST(TickClock, AnInterruptedSampleIsNotSharp) {
  constexpr uint64_t kTicksOfMs = 2'000'000;
  constexpr uint64_t kBetween = 100 * kTicksOfMs;
  EXPECT_TRUE(IsSharp({.ticks = 0, .ns = 0, .gap = 100}, kBetween));
  EXPECT_FALSE(IsSharp({.ticks = 0, .ns = 0, .gap = 3 * kTicksOfMs}, kBetween));
}

TEST(TickClock, TheScaleIsMicrosecondsOfATick) {
  // 2 GHz.
  const uint64_t scale =
      TickScale({.ticks = 1000, .ns = 5'000'000, .gap = 0},
                {.ticks = 200'001'000, .ns = 105'000'000, .gap = 0});
  EXPECT_EQ(scale, (uint64_t{1} << 32) / 2000);
}

}  // namespace
}  // namespace traincheck::agent
