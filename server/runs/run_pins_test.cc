#include "server/runs/run_pins.h"

#include <gtest/gtest.h>

#include <optional>
#include <vector>

namespace traincheck::server {
namespace {

TEST(RunPinsTest, ARunIsPinnedUntilItsLastPinIsGone) {
  RunPins pins;
  EXPECT_FALSE(pins.IsPinned("a"));
  std::optional<RunPins::Pin> first(pins.Hold("a"));
  std::optional<RunPins::Pin> second(pins.Hold("a"));
  first.reset();
  EXPECT_TRUE(pins.IsPinned("a"));
  EXPECT_FALSE(pins.IsPinned("b"));
  second.reset();
  EXPECT_FALSE(pins.IsPinned("a"));
}

TEST(RunPinsTest, AMovedPinHoldsOnce) {
  RunPins pins;
  {
    std::vector<RunPins::Pin> held;
    for (int i = 0; i < 10; ++i) held.push_back(pins.Hold("a"));
    EXPECT_TRUE(pins.IsPinned("a"));
  }
  EXPECT_FALSE(pins.IsPinned("a"));
}

}  // namespace
}  // namespace traincheck::server
