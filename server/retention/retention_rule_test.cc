#include "server/retention/retention_rule.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr int64_t kNow = 1'700'000'000;
constexpr uint64_t kDisk = 1000;

// Ended `age` days ago, with 10 bytes.
RunUse Ended(const std::string& id, int64_t age) {
  return {.id = id,
          .ended_unix_ns =
              static_cast<uint64_t>(kNow - age * 86'400) * 1'000'000'000,
          .stored_bytes = 10};
}

std::vector<std::string> Drop(const std::vector<RunUse>& runs,
                              const RetentionLimits& limits) {
  return RunsToDrop(runs, {"reference"}, limits, absl::FromUnixSeconds(kNow),
                    [](const std::string& run) { return run == "checked"; });
}

TEST(RetentionRuleTest, NothingGoesWithoutLimits) {
  EXPECT_THAT(Drop({Ended("a", 10'000)}, {}), IsEmpty());
}

TEST(RetentionRuleTest, WhatIsTooOldGoesOldestFirst) {
  EXPECT_THAT(Drop({Ended("new", 1), Ended("old", 8), Ended("oldest", 9)},
                   {.age = absl::Hours(7 * 24)}),
              ElementsAre("oldest", "old"));
}

TEST(RetentionRuleTest, WhatIsTooMuchGoesOldestFirstUntilItFits) {
  const std::vector<RunUse> runs = {Ended("c", 1), Ended("a", 3),
                                    Ended("b", 2)};
  EXPECT_THAT(Drop(runs, {.bytes = 30}), IsEmpty());
  EXPECT_THAT(Drop(runs, {.bytes = 29}), ElementsAre("a"));
  EXPECT_THAT(Drop(runs, {.bytes = 10}), ElementsAre("a", "b"));
  EXPECT_THAT(Drop(runs, {.bytes = 0}), ElementsAre("a", "b", "c"));
}

// Before it takes what others may keep.
TEST(RetentionRuleTest, OneOwnersRunsGoWhereTheyAreTooMuch) {
  std::vector<RunUse> runs = {Ended("alice-new", 1), Ended("bob-old", 9),
                              Ended("alice-old", 8), Ended("admin", 9)};
  runs[0].owner = runs[2].owner = "alice";
  runs[1].owner = "bob";
  EXPECT_THAT(Drop(runs, {.owner_bytes = 20}), IsEmpty());
  EXPECT_THAT(Drop(runs, {.owner_bytes = 19}), ElementsAre("alice-old"));
  EXPECT_THAT(Drop(runs, {.owner_bytes = 0}),
              ElementsAre("bob-old", "alice-old", "alice-new"));
}

TEST(RetentionRuleTest, WhatIsInUseStaysWhateverTheLimits) {
  RunUse live = Ended("live", 100);
  live.ended_unix_ns = 0;
  RunUse kept = Ended("kept", 100);
  kept.is_kept = true;
  RunUse unchecked = Ended("unchecked", 100);
  unchecked.is_checked = true;
  RunUse checked = Ended("checked", 100);
  checked.is_checked = true;
  RunUse empty = Ended("empty", 100);
  empty.stored_bytes = 0;
  const std::vector<RunUse> runs = {live,    kept,  unchecked,
                                    checked, empty, Ended("reference", 100)};
  EXPECT_THAT(Drop(runs, {.age = absl::Hours(1)}), ElementsAre("checked"));
  EXPECT_THAT(Drop(runs, {.bytes = 0}), ElementsAre("checked"));
}

TEST(RetentionRuleTest, SizesAreReadWithTheirUnits) {
  EXPECT_EQ(*ParseBytes("4096", kDisk), 4096u);
  EXPECT_EQ(*ParseBytes("200GB", kDisk), 200'000'000'000u);
  EXPECT_EQ(*ParseBytes("1.5tb", kDisk), 1'500'000'000'000u);
  EXPECT_EQ(*ParseBytes("512MiB", kDisk), 536'870'912u);
  EXPECT_EQ(*ParseBytes("50%", kDisk), 500u);
  EXPECT_EQ(*ParseBytes("0.5%", kDisk), 5u);
  for (const char* bad : {"", "GB", "12 apples", "-5", "1e3", "99999999TB"}) {
    EXPECT_THAT(std::string(ParseBytes(bad, kDisk).status().message()),
                HasSubstr("is not a size"))
        << bad;
  }
}

}  // namespace
}  // namespace traincheck::server
