#include "ctl/text/since.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

constexpr uint64_t kSecond = 1'000'000'000;
constexpr uint64_t kNow = 1'772'355'907 * kSecond;  // 2026-03-01T09:05:07Z
constexpr uint64_t kHundredYears = uint64_t{36525} * 86400 * kSecond;

TEST(SinceTest, HowLongAgo) {
  EXPECT_EQ(*ParseSince("90s", kNow), kNow - 90 * kSecond);
  EXPECT_EQ(*ParseSince("10m", kNow), kNow - 600 * kSecond);
  EXPECT_EQ(*ParseSince("2h", kNow), kNow - 7200 * kSecond);
  EXPECT_EQ(*ParseSince("3d", kNow), kNow - 3 * 86400 * kSecond);
  EXPECT_EQ(*ParseSince("4294967295d", kNow), 0u);  // not before all time
}

TEST(SinceTest, When) {
  EXPECT_EQ(*ParseSince("2026-03-01T09:05:07Z", 0), kNow);
  EXPECT_EQ(*ParseSince("2026-03-01T09:05:07.5Z", 0), kNow + kSecond / 2);
  EXPECT_EQ(*ParseSince("2026-03-01T10:05:07+01:00", 0), kNow);
  EXPECT_EQ(*ParseSince("2026-03-01", 0), kNow - 32707 * kSecond);
}

TEST(SinceTest, WhatIsNotATimeIsNamed) {
  for (const char* text : {"", "m", "10", "-1h", "1.5h", "yesterday", "10M"}) {
    const auto since = ParseSince(text, kNow);
    ASSERT_FALSE(since.ok()) << text;
    EXPECT_THAT(std::string(since.status().message()),
                testing::HasSubstr(std::string("\"") + text + "\""));
  }
}

TEST(UntilTest, ForHowLongOrWhen) {
  EXPECT_EQ(*ParseUntil("12h", kNow), kNow + 43200 * kSecond);
  EXPECT_EQ(*ParseUntil("3d", kNow), kNow + 3 * 86400 * kSecond);
  EXPECT_EQ(*ParseUntil("2026-03-02", kNow), kNow + 53693 * kSecond);
  // 213504 days in nanoseconds are a little more than 64 bits hold.
  for (const char* days : {"36526d", "213504d", "4294967295d"}) {
    EXPECT_EQ(*ParseUntil(days, kNow), kNow + kHundredYears) << days;
  }
}

TEST(UntilTest, WhatIsOverOrNotATimeIsRefused) {
  for (const char* text : {"2026-03-01", "2026-03-01T09:05:07Z", "0d"}) {
    EXPECT_THAT(std::string(ParseUntil(text, kNow).status().message()),
                testing::HasSubstr("is in the past"))
        << text;
  }
  EXPECT_THAT(std::string(ParseUntil("soon", kNow).status().message()),
              testing::HasSubstr("\"soon\" is not a time"));
}

}  // namespace
}  // namespace traincheck::ctl
