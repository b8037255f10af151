#include "base/logging.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "nlohmann/json.hpp"

namespace traincheck {
namespace {

TEST(Logging, NobodysTextBeginsALineOrMovesTheCursor) {
  EXPECT_TRUE(InitLogging("test", "info"));
  testing::internal::CaptureStderr();
  spdlog::info("run begins run={}",
               "a\n2026-01-01T00:00:00.000+0000 error test: forged\u009b31m");
  spdlog::debug("not shown");
  const std::string lines = testing::internal::GetCapturedStderr();
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 1) << lines;
  EXPECT_THAT(
      lines, testing::EndsWith(" info test: run begins run=a\\u{a}2026-01-01T00"
                               ":00:00.000+0000 error test: forged\\u{9b}31m"
                               "\n"));
}

TEST(Logging, AJsonLineIsOneObjectWhateverItsTextHas) {
  spdlog::drop_all();
  EXPECT_TRUE(InitLogging("test", "info", LogFormat::kJson));
  testing::internal::CaptureStderr();
  spdlog::warn("run begins run=\"{}\"", "a\n\xff{}");
  const std::string line = testing::internal::GetCapturedStderr();
  const auto json = nlohmann::json::parse(line);
  EXPECT_EQ(json["level"], "warning");
  EXPECT_EQ(json["program"], "test");
  EXPECT_EQ(json["message"], "run begins run=\"a\n\xef\xbf\xbd{}\"");
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1) << line;
  EXPECT_EQ(json.size(), 4u);
}

}  // namespace
}  // namespace traincheck
