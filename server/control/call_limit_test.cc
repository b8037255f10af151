#include "server/control/call_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>

namespace traincheck::server {
namespace {

TEST(CallLimitTest, OneOverTheLimitIsRefusedUntilOneHasLeft) {
  CallLimit limit("calls that watch", 2);
  std::optional<absl::StatusOr<CallLimit::Slot>> first(limit.Enter());
  const absl::StatusOr<CallLimit::Slot> second = limit.Enter();
  EXPECT_TRUE(first->ok());
  EXPECT_TRUE(second.ok());
  for (int i = 0; i < 3; ++i) {
    const absl::StatusOr<CallLimit::Slot> third = limit.Enter();
    EXPECT_EQ(third.status().code(), absl::StatusCode::kResourceExhausted);
    EXPECT_THAT(std::string(third.status().message()),
                testing::HasSubstr("2 calls that watch are open"));
  }
  first.reset();
  EXPECT_TRUE(limit.Enter().ok());
}

}  // namespace
}  // namespace traincheck::server
