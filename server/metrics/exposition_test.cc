#include "server/metrics/exposition.h"

#include <gtest/gtest.h>

#include <limits>

namespace traincheck::server {
namespace {

TEST(Exposition, FamiliesAndSamples) {
  Exposition text;
  text.Family("a_total", MetricType::kCounter, "How many");
  text.Sample(3);
  text.Family("b", MetricType::kGauge, "How much");
  text.Sample(0.25, {{"state", "x"}, {"run", "r"}});
  text.Family("c_seconds", MetricType::kSummary, "How long");
  text.Sample(1.5, {}, "_sum");
  text.Sample(2, {}, "_count");
  EXPECT_EQ(text.text(),
            "# HELP a_total How many\n# TYPE a_total counter\na_total 3\n"
            "# HELP b How much\n# TYPE b gauge\n"
            "b{state=\"x\",run=\"r\"} 0.25\n"
            "# HELP c_seconds How long\n# TYPE c_seconds summary\n"
            "c_seconds_sum 1.5\nc_seconds_count 2\n");
}

TEST(Exposition, ALabelCannotBreakOutOfItsQuotes) {
  Exposition text;
  text.Family("a", MetricType::kGauge, "h");
  const size_t before = text.text().size();
  text.Sample(1, {{"run", "x\"} 9\nb{y=\"\\"}});
  const std::string line = text.text().substr(before);
  EXPECT_EQ(std::count(line.begin(), line.end(), '\n'), 1);
  EXPECT_EQ(line.find("a{run=\"x\\\"} 9"), 0u) << line;
  EXPECT_EQ(line.substr(line.size() - 5), "\"} 1\n") << line;
}

TEST(Exposition, NumbersThatAreNone) {
  Exposition text;
  text.Family("a", MetricType::kGauge, "h");
  text.Sample(std::numeric_limits<double>::quiet_NaN());
  text.Sample(-std::numeric_limits<double>::infinity());
  EXPECT_NE(text.text().find("a NaN\na -Inf\n"), std::string::npos);
}

}  // namespace
}  // namespace traincheck::server
