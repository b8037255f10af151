#include "invariants/relations/call_returns/late_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "invariants/relations/call_returns/call_durations.h"
#include "invariants/relations/call_returns/standstill_words.h"

namespace traincheck {
namespace {

using testing::ElementsAre;
using testing::Pair;
using testing::SizeIs;

constexpr uint64_t kGroup = 7;
constexpr uint64_t kBackward = 8;
constexpr uint64_t kForward = 9;

class LateCallsTest : public testing::Test {
 protected:
  static SharedCall Call(uint64_t kind, uint64_t number, int32_t world) {
    SharedCall call{.kind = kind, .number = number};
    for (int32_t rank = 0; rank < world; ++rank) call.ranks.push_back(rank);
    call.collective = kind == kGroup;
    return call;
  }
  static LateCall Late(const SharedCall& shared) {
    return {.shared = shared,
            .function = "torch.all_reduce",
            .site = "t.py:" + std::to_string(shared.kind),
            .step = 5,
            .brings = {},
            .limit = "10 s"};
  }
  void Begin(LateCalls* calls, int32_t rank, const SharedCall& call) {
    calls->Begin(0, rank, static_cast<int32_t>(call.ranks.size()), call);
  }
  void OnLate(LateCalls* calls, int32_t rank, const SharedCall& call) {
    calls->OnLate(0, rank, static_cast<int32_t>(call.ranks.size()), Late(call));
  }

  std::vector<Standstill> told_;
  const LateCalls::Listener listen_ = [this](const Standstill& standstill) {
    told_.push_back(standstill);
  };
  LateCalls deadlocks_{/*deadlock=*/true, listen_};
  LateCalls all_{/*deadlock=*/false, listen_};
};

TEST_F(LateCallsTest, NobodyReturnsFromACollectiveOfAll) {
  const SharedCall call = Call(kGroup, 3, 3);
  for (int32_t rank : {0, 1, 2}) Begin(&deadlocks_, rank, call);
  OnLate(&deadlocks_, 0, call);
  OnLate(&deadlocks_, 2, call);
  EXPECT_THAT(told_, SizeIs(0));
  OnLate(&deadlocks_, 1, call);
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0].late, SizeIs(3));
}

TEST_F(LateCallsTest, WhoCameBackInTimeShowsThatItReturns) {
  const SharedCall call = Call(kGroup, 3, 2);
  for (int32_t rank : {0, 1}) Begin(&deadlocks_, rank, call);
  // Rank 1 was slow to come, rank 0 waited for it; read in either order.
  Begin(&deadlocks_, 1, Call(kGroup, 4, 2));
  OnLate(&deadlocks_, 0, call);
  deadlocks_.Return(0, 0);
  // Rank 0 saves now.
  OnLate(&deadlocks_, 1, Call(kGroup, 4, 2));
  EXPECT_THAT(told_, SizeIs(0));
}

// In whatever order the two are read.
TEST_F(LateCallsTest, ARankThatEndedAfterItHadBegunTheCallIsNotMissing) {
  const SharedCall call = Call(kGroup, 3, 2);
  Begin(&deadlocks_, 1, call);
  deadlocks_.EndRank(0, 1, "ended in order in step 4");
  Begin(&deadlocks_, 0, call);
  OnLate(&deadlocks_, 0, call);
  EXPECT_THAT(told_, SizeIs(0));
}

TEST_F(LateCallsTest, RanksThatWaitForEachOther) {
  for (int32_t rank : {0, 1}) Begin(&deadlocks_, rank, Call(kForward, 0, 2));
  Begin(&deadlocks_, 0, Call(kBackward, 0, 2));
  Begin(&deadlocks_, 1, Call(kForward, 1, 2));
  OnLate(&deadlocks_, 0, Call(kBackward, 0, 2));
  OnLate(&deadlocks_, 1, Call(kForward, 1, 2));
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(FindingOf(told_[0]).sites, ElementsAre("t.py:8", "t.py:9"));
}

TEST_F(LateCallsTest, ARankThatComputesIsWaitedFor) {
  for (int32_t rank : {0, 1}) Begin(&deadlocks_, rank, Call(kForward, 0, 2));
  OnLate(&deadlocks_, 0, Call(kForward, 0, 2));
  Begin(&deadlocks_, 1, Call(kBackward, 0, 2));
  OnLate(&deadlocks_, 1, Call(kBackward, 0, 2));
  EXPECT_THAT(told_, SizeIs(0));
}

TEST_F(LateCallsTest, AllInOneForwardAreComputing) {
  for (int32_t rank : {0, 1}) {
    Begin(&deadlocks_, rank, Call(kForward, 0, 2));
    OnLate(&deadlocks_, rank, Call(kForward, 0, 2));
  }
  EXPECT_THAT(told_, SizeIs(0));
}

TEST_F(LateCallsTest, AnEndedRankIsWaitedForInVain) {
  Begin(&deadlocks_, 0, Call(kBackward, 4, 2));
  OnLate(&deadlocks_, 0, Call(kBackward, 4, 2));
  EXPECT_THAT(told_, SizeIs(0));
  deadlocks_.EndRank(0, 1, "ended in order in step 4");
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0].others,
              ElementsAre(Pair(1, "ended in order in step 4")));
}

TEST_F(LateCallsTest, OfARankThatNeverCameNothingIsKnown) {
  OnLate(&deadlocks_, 0, Call(kBackward, 0, 3));
  deadlocks_.EndRank(0, 1, "ended in order in step 4");
  EXPECT_THAT(told_, SizeIs(0));
}

TEST_F(LateCallsTest, ALateCallNamesWhoHasBegunIt) {
  Begin(&all_, 0, Call(kGroup, 0, 3));
  Begin(&all_, 1, Call(kGroup, 0, 3));
  OnLate(&all_, 0, Call(kGroup, 0, 3));
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_FALSE(told_[0].again);
  EXPECT_THAT(told_[0].others, ElementsAre(Pair(1, "has begun it"),
                                           Pair(2, "has not begun it")));
  Begin(&all_, 2, Call(kGroup, 0, 3));
  ASSERT_THAT(told_, SizeIs(2));
  EXPECT_TRUE(told_[1].again);
  EXPECT_THAT(told_[1].others,
              ElementsAre(Pair(1, "has begun it"), Pair(2, "has begun it")));
}

TEST(CallDurationsTest, MedianIsAtMostAQuarterTooLong) {
  for (const uint64_t us : {3u, 90u, 1000u, 70000u, 123456789u}) {
    CallDurations durations;
    durations.Add(1);
    for (int i = 0; i < 8; ++i) durations.Add(us);
    durations.Add(uint64_t{1} << 40);
    EXPECT_GE(durations.MedianUs(), us);
    EXPECT_LE(durations.MedianUs(), us + us / 4 + 1) << us;
  }
}

TEST(StandstillWordsTest, Durations) {
  EXPECT_EQ(DurationWords(300), "300 us");
  EXPECT_EQ(DurationWords(12000), "12 ms");
  EXPECT_EQ(DurationWords(10000000), "10 s");
}

}  // namespace
}  // namespace traincheck
