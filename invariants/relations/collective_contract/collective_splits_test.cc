#include "invariants/relations/collective_contract/collective_splits.h"

#include <gtest/gtest.h>

#include <numeric>

namespace traincheck {
namespace {

class ExchangesTest : public testing::Test {
 protected:
  // How many parts a member of a group of so many looks at.
  size_t Pairs(int32_t members, int32_t rank) {
    ProcessGroupInfo group;
    group.ranks.resize(static_cast<size_t>(members));
    std::iota(group.ranks.begin(), group.ranks.end(), 0);
    const auto exchanges = ExchangesOf(call_, definitions_, group, rank);
    EXPECT_TRUE(exchanges);
    EXPECT_EQ(exchanges->all.has_value(), members > 8);
    return exchanges->pairs.size();
  }

  const FunctionInfo function_{
      .name = "torch.distributed.distributed_c10d.all_to_all_single",
      .category = {},
      .roles = {}};
  Call call_{.function = &function_};
  ProcessDefinitions definitions_;
};

TEST_F(ExchangesTest, OfASmallGroupAreWithEachOther) {
  EXPECT_EQ(Pairs(2, 1), 1u);
  EXPECT_EQ(Pairs(8, 3), 7u);
}

// The windows of a collective do not grow with the square of its ranks.
TEST_F(ExchangesTest, OfALargeGroupAreFew) {
  size_t pairs = 0;
  for (int32_t rank = 0; rank < 256; ++rank) pairs += Pairs(256, rank);
  EXPECT_EQ(pairs, 8u * 7u);
}

}  // namespace
}  // namespace traincheck
