#include "invariants/rules/unseen_in_run.h"

#include <gtest/gtest.h>

namespace traincheck {
namespace {

ProcessBrief Rank(int32_t rank, const std::string& gap = "") {
  ProcessBrief brief;
  brief.number = static_cast<uint32_t>(rank);
  brief.place.rank = rank;
  brief.gap_reason = gap;
  return brief;
}

TEST(UnseenInRunTest, ARankThatNeverCameIsTheReason) {
  const UnseenInRun unseen("rank 3 never came", {Rank(0, "lost records")});
  EXPECT_EQ(unseen.Why({}), "rank 3 never came");
}

TEST(UnseenInRunTest, WithoutATrainingNothingWasSeen) {
  EXPECT_EQ(UnseenInRun("", {}).Why({}),
            "no step of an optimizer was recorded");
}

TEST(UnseenInRunTest, TheFirstOfThoseThatSawLessIsNamed) {
  ProcessBrief lost = Rank(2);
  lost.was_lost = true;
  // Their sight says nothing of what they looked at.
  EXPECT_EQ(UnseenInRun("", {Rank(0), Rank(1), lost}).Why({}),
            "rank 0 does not say what it looked at (an older agent)");
  EXPECT_EQ(UnseenInRun("", {lost, Rank(0)}).Why({}),
            "nothing was heard any more of rank 2");
  EXPECT_EQ(UnseenInRun("", {Rank(0, "a"), Rank(1, "a"), Rank(2)}).Why({}),
            "a");
}

TEST(UnseenInRunTest, OneThatDiffersBehindManyThatAreAlikeIsAskedToo) {
  Sight sight;
  const std::string looks = "sight:looks";
  sight.OnScalar({.name = &looks, .value = 1'000});
  std::vector<ProcessBrief> trainings;
  for (int32_t rank = 0; rank < 100; ++rank) {
    trainings.push_back(Rank(rank));
    trainings.back().sight = &sight;
  }
  EXPECT_EQ(UnseenInRun("", trainings).Why({}), "");
  trainings.back().was_lost = true;
  EXPECT_EQ(UnseenInRun("", trainings).Why({}),
            "nothing was heard any more of rank 99");
}

}  // namespace
}  // namespace traincheck
