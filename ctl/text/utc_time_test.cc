#include "ctl/text/utc_time.h"

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

TEST(UtcTimeTest, Rfc3339InUtcWithMilliseconds) {
  EXPECT_EQ(Rfc3339(1'772'355'907'042'999'999), "2026-03-01T09:05:07.042Z");
  EXPECT_EQ(Rfc3339(0), "1970-01-01T00:00:00.000Z");
}

TEST(UtcTimeTest, IgnoresTheLocalTimeZone) {
  setenv("TZ", "America/New_York", 1);
  tzset();
  EXPECT_EQ(CompactTime(1'772'355'907'042'999'999), "20260301-090507");
}

TEST(UtcTimeTest, Durations) {
  EXPECT_EQ(Duration(-1), "0s");
  EXPECT_EQ(Duration(59.9), "59s");
  EXPECT_EQ(Duration(185), "3m05s");
  EXPECT_EQ(Duration(7620), "2h07m");
  EXPECT_EQ(Duration(5 * 86400 + 3 * 3600), "5d03h");
}

}  // namespace
}  // namespace traincheck::ctl
