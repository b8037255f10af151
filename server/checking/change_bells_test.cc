#include "server/checking/change_bells.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "absl/time/clock.h"

namespace traincheck::server {
namespace {

constexpr absl::Time kAtOnce = absl::InfinitePast();

TEST(ChangeBells, WhatRangBeforeTheWaitIsNotMissedAndCountsOnce) {
  ChangeBells bells;
  ChangeBells::Bell bell(&bells, "run");
  EXPECT_FALSE(bell.Wait(kAtOnce));
  bells.Ring("run");
  bells.Ring("run");
  EXPECT_TRUE(bell.Wait(kAtOnce));
  EXPECT_FALSE(bell.Wait(kAtOnce));
}

TEST(ChangeBells, OtherRunsWakeOnlyThoseWhoWaitForAll) {
  ChangeBells bells;
  ChangeBells::Bell one(&bells, "run");
  ChangeBells::Bell all(&bells, "");
  bells.Ring("other");
  EXPECT_FALSE(one.Wait(kAtOnce));
  EXPECT_TRUE(all.Wait(kAtOnce));
  bells.RingAll();
  EXPECT_TRUE(one.Wait(kAtOnce));
  EXPECT_TRUE(all.Wait(kAtOnce));
}

TEST(ChangeBells, WhoSleepsWakes) {
  ChangeBells bells;
  std::vector<std::thread> sleepers;
  for (int i = 0; i < 20; ++i) {
    sleepers.emplace_back([&bells, i] {
      ChangeBells::Bell bell(&bells, i % 2 == 0 ? "run" : "");
      EXPECT_TRUE(bell.Wait(absl::Now() + absl::Minutes(1)));
    });
  }
  std::atomic<bool> woken = false;
  // Again and again: some are not asleep yet.
  std::thread ringer([&] {
    while (!woken) bells.Ring("run");
  });
  for (std::thread& sleeper : sleepers) sleeper.join();
  woken = true;
  ringer.join();
}

}  // namespace
}  // namespace traincheck::server
