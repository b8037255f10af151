#include "server/checking/rank_pace.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

RunView::Process ProcessOf(uint32_t number, uint32_t attempt, int32_t rank) {
  RunView::Process process;
  process.number = number;
  process.attempt = attempt;
  process.rank = rank;
  process.is_main = true;
  return process;
}

SharedRanks RanksFrom(int32_t first, int32_t count) {
  std::vector<int32_t> ranks(count);
  std::iota(ranks.begin(), ranks.end(), first);
  return std::make_shared<const std::vector<int32_t>>(std::move(ranks));
}

TEST(RankPace, NobodyWaitsForHimself) {
  RankPace pace;
  const SharedRanks all = RanksFrom(0, 3);
  pace.Add(ProcessOf(0, 0, 0), 5, true);
  EXPECT_EQ(pace.SlowestOfOthers({0, 0}, all), UINT64_MAX);
  RankPace of_three;
  of_three.Add(ProcessOf(0, 0, 0), 5, true);
  of_three.Add(ProcessOf(1, 0, 1), 3, true);
  of_three.Add(ProcessOf(2, 0, 2), 9, true);
  EXPECT_EQ(of_three.SlowestOfOthers({0, 0}, all), 3u);
  EXPECT_EQ(of_three.SlowestOfOthers({0, 1}, all), 5u);
  EXPECT_EQ(of_three.SlowestOfOthers({0, 2}, all), 3u);
}

TEST(RankPace, OthersAreLiveAndOfTheGroupAndTheAttempt) {
  RankPace pace;
  pace.Add(ProcessOf(0, 0, 0), 5, true);
  pace.Add(ProcessOf(1, 0, 1), 1, false);
  pace.Add(ProcessOf(2, 1, 1), 2, true);
  pace.Add(ProcessOf(3, 0, 7), 3, true);
  EXPECT_EQ(pace.SlowestOfOthers({0, 0}, RanksFrom(0, 2)), UINT64_MAX);
  EXPECT_EQ(pace.SlowestOfOthers({0, 0}, RanksFrom(0, 8)), 3u);
  EXPECT_EQ(pace.SlowestOfOthers({1, 0}, RanksFrom(0, 2)), 2u);
  EXPECT_EQ(pace.newest_attempt(), 1u);
}

TEST(RankPace, HoldersOfOnePlaceWaitForOthersOnly) {
  RankPace pace;
  pace.Add(ProcessOf(0, 0, 0), 2, true);
  pace.Add(ProcessOf(4, 0, 0), 8, true);
  pace.Add(ProcessOf(5, 0, 1), 6, true);
  EXPECT_THAT(pace.HoldersOf({0, 0}), ElementsAre(0, 4));
  EXPECT_THAT(pace.HoldersOf({3, 0}), IsEmpty());
  EXPECT_TRUE(pace.IsHeld({0, 1}));
  EXPECT_FALSE(pace.IsHeld({0, 2}));
  EXPECT_EQ(pace.SlowestOfOthers({0, 0}, RanksFrom(0, 2)), 6u);
  EXPECT_EQ(pace.SlowestOfOthers({0, 1}, RanksFrom(0, 2)), 2u);
}

// Looks at places where all ranks of a world ask once.
uint64_t LooksOf(int32_t world) {
  RankPace pace;
  const SharedRanks all = RanksFrom(0, world);
  for (int32_t rank = 0; rank < world; ++rank) {
    pace.Add(ProcessOf(rank, 0, rank), 10, true);
  }
  for (int32_t rank = 0; rank < world; ++rank) {
    EXPECT_EQ(pace.SlowestOfOthers({0, rank}, all), 10u);
  }
  return pace.looks();
}

TEST(RankPace, WorkGrowsLinearlyWithRanks) {
  EXPECT_LE(LooksOf(1024), 16 * LooksOf(64));
}

}  // namespace
}  // namespace traincheck::server
