#include "base/whole_part.h"

#include <gtest/gtest.h>

#include <limits>

namespace traincheck {
namespace {

using Limits = std::numeric_limits<double>;

TEST(WholePart, OfNumbersThatFit) {
  EXPECT_EQ(WholePart(2.5), 2);
  EXPECT_EQ(WholePart(-2.5), -2);
  EXPECT_EQ(WholePart(-0x1p63), std::numeric_limits<int64_t>::min());
}

TEST(WholePart, NoneOfOthers) {
  EXPECT_EQ(WholePart(0x1p63), std::nullopt);
  EXPECT_EQ(WholePart(-0x1.0000000000001p63), std::nullopt);
  EXPECT_EQ(WholePart(Limits::infinity()), std::nullopt);
  EXPECT_EQ(WholePart(-Limits::infinity()), std::nullopt);
  EXPECT_EQ(WholePart(Limits::quiet_NaN()), std::nullopt);
}

}  // namespace
}  // namespace traincheck
