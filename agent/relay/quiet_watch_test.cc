#include "agent/relay/quiet_watch.h"

#include <gtest/gtest.h>

namespace traincheck::agent {
namespace {

using TimePoint = QuietWatch::TimePoint;

// How often it is told within so long, asked every 50 ms.
int TimesTold(std::chrono::seconds within) {
  QuietWatch watch;
  const TimePoint records = TimePoint(std::chrono::hours(5));
  int told = 0;
  for (auto quiet = std::chrono::milliseconds(0); quiet <= within;
       quiet += std::chrono::milliseconds(50)) {
    told += watch.IsDue(records + quiet, records);
  }
  return told;
}

TEST(QuietWatchTest, SaysNothingForTenSeconds) {
  EXPECT_EQ(TimesTold(std::chrono::seconds(9)), 0);
  EXPECT_EQ(TimesTold(std::chrono::seconds(11)), 1);
}

TEST(QuietWatchTest, PausesGrowAndEndAfterAnHour) {
  EXPECT_EQ(TimesTold(std::chrono::seconds(60)), 5);
  const int hour = TimesTold(std::chrono::hours(1));
  EXPECT_GE(hour, 60);
  EXPECT_LE(hour, 75);
  EXPECT_EQ(TimesTold(std::chrono::hours(24)), hour);
}

TEST(QuietWatchTest, RecordsBeginItAnew) {
  QuietWatch watch;
  const TimePoint first = TimePoint(std::chrono::hours(5));
  EXPECT_TRUE(watch.IsDue(first + kQuietAfter, first));
  const TimePoint second = first + std::chrono::seconds(15);
  EXPECT_FALSE(watch.IsDue(second + std::chrono::seconds(9), second));
  EXPECT_TRUE(watch.IsDue(second + kQuietAfter, second));
}

}  // namespace
}  // namespace traincheck::agent
