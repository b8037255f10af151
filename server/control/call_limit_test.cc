#include "server/control/call_limit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <optional>
#include <string>
#include <vector>

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

TEST(CallLimitTest, OneOwnerLeavesPlacesForOthers) {
  CallLimit limit("calls that watch", 10, {.reserve = 4, .each = 2});
  std::vector<CallLimit::Slot> slots;
  const auto enter = [&](const std::string& owner) {
    absl::StatusOr<CallLimit::Slot> slot = limit.Enter(owner);
    if (slot.ok()) slots.push_back(*std::move(slot));
    return slot.ok() ? "" : std::string(slot.status().message());
  };
  for (int i = 0; i < 6; ++i) EXPECT_EQ(enter("alice"), "");
  EXPECT_THAT(enter("alice"), testing::HasSubstr("6 of them your own"));
  EXPECT_EQ(enter("bob"), "");
  EXPECT_EQ(enter("bob"), "");
  EXPECT_THAT(enter("bob"), testing::HasSubstr("2 of them your own"));
  EXPECT_EQ(enter("carol"), "");
  EXPECT_EQ(enter("dora"), "");
  EXPECT_THAT(enter("eve"), testing::HasSubstr("10 calls that watch are open"));
  slots.clear();
  for (int i = 0; i < 6; ++i) EXPECT_EQ(enter("bob"), "");
}

}  // namespace
}  // namespace traincheck::server
