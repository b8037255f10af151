#include "base/line_limit.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

TEST(LineLimit, LeavesOutWhatIsTooMuchAndCountsIt) {
  LineLimit limit(2, absl::Seconds(10));
  const absl::Time start = absl::FromUnixSeconds(1'000);
  EXPECT_TRUE(limit.Allows(start));
  EXPECT_TRUE(limit.Allows(start + absl::Seconds(9)));
  for (int i = 0; i < 3; ++i) EXPECT_FALSE(limit.Allows(start));
  EXPECT_EQ(limit.TakeLeftOut(start + absl::Seconds(9)), 0u);
  EXPECT_EQ(limit.TakeLeftOut(start + absl::Seconds(10)), 3u);
  EXPECT_EQ(limit.TakeLeftOut(start + absl::Seconds(10)), 0u);
}

TEST(LineLimit, BeginsAnewAfterItsPeriod) {
  LineLimit limit(1, absl::Seconds(10));
  absl::Time now = absl::FromUnixSeconds(1'000);
  for (int period = 0; period < 3; ++period) {
    EXPECT_TRUE(limit.Allows(now));
    EXPECT_FALSE(limit.Allows(now));
    now += absl::Seconds(10);
  }
  EXPECT_EQ(limit.TakeLeftOut(now), 3u);
}

}  // namespace
}  // namespace traincheck
