#include "invariants/rules/rank_groups.h"

#include <gtest/gtest.h>

#include "invariants/testing/trace_builder.h"

namespace traincheck {
namespace {

using Ranks = std::vector<int32_t>;

class SortedGroupsTest : public testing::Test, private ProcessObserver {
 protected:
  SortedGroupsTest() { facts_.AddObserver(this); }
  void Flush() {
    for (const StoredBatch& batch : trace_.TakeBatches()) {
      facts_.Consume(batch);
    }
  }
  void OnDefinition(const ProcessFacts& facts, RecordType type,
                    uint32_t id) override {
    groups_.OnDefinition(type);
  }

  TraceBuilder trace_;
  ProcessFacts facts_{0};
  SortedGroups groups_;
};

TEST_F(SortedGroupsTest, CountGroupsOfTheSameRanks) {
  trace_.ProcessGroup(1, {1, 0});
  trace_.ProcessGroup(2, {2, 0, 1});
  trace_.ProcessGroup(3, {0, 1});
  Flush();
  EXPECT_EQ(*groups_.Of(facts_, 1)->ranks, (Ranks{0, 1}));
  EXPECT_EQ(*groups_.Of(facts_, 2)->ranks, (Ranks{0, 1, 2}));
  EXPECT_EQ(groups_.Of(facts_, 1)->ordinal, 0u);
  EXPECT_EQ(groups_.Of(facts_, 2)->ordinal, 0u);
  EXPECT_EQ(groups_.Of(facts_, 3)->ordinal, 1u);
  EXPECT_EQ(groups_.Of(facts_, 4), nullptr);
}

// The cost of a collective does not grow with the ranks and groups.
TEST_F(SortedGroupsTest, SortEachListOnce) {
  for (uint32_t group = 1; group <= 50; ++group) {
    trace_.ProcessGroup(group, {1, 0, static_cast<int32_t>(group) + 1});
  }
  Flush();
  for (int collective = 0; collective < 100; ++collective) {
    for (uint32_t group = 1; group <= 50; ++group) groups_.Of(facts_, group);
  }
  EXPECT_EQ(groups_.sorts(), 50u);
  trace_.ProcessGroup(51, {3, 2});
  Flush();
  EXPECT_EQ(*groups_.Of(facts_, 51)->ranks, (Ranks{2, 3}));
  EXPECT_EQ(groups_.sorts(), 101u);
}

}  // namespace
}  // namespace traincheck
