#include "invariants/relations/call_returns/call_returns.h"

#include <gtest/gtest.h>

#include <limits>

namespace traincheck {
namespace {

absl::Status Parse(uint64_t seconds, uint64_t medians) {
  return CallReturns()
      ->Parse({{"seconds", seconds}, {"medians", medians}, {"known_from", 20}},
              "rule")
      .status();
}

// Microseconds of larger numbers would not fit into 64 bits, and a call would
// be late at once.
TEST(CallReturns, TakesNoNumbersBeyondAllTimes) {
  EXPECT_TRUE(Parse(60, 5).ok());
  EXPECT_TRUE(Parse(31536000, 100000).ok());
  EXPECT_EQ(Parse(18446744073710, 5).message(), "rule.seconds: above 31536000");
  EXPECT_EQ(Parse(60, std::numeric_limits<uint64_t>::max()).message(),
            "rule.medians: above 100000");
}

}  // namespace
}  // namespace traincheck
