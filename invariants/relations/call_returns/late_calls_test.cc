#include "invariants/relations/call_returns/late_calls.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <numeric>

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
    std::vector<int32_t> ranks(static_cast<size_t>(world));
    std::iota(ranks.begin(), ranks.end(), 0);
    return {.kind = kind,
            .number = number,
            .ranks = std::make_shared<const std::vector<int32_t>>(ranks),
            .collective = kind == kGroup};
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
    calls->Begin(0, rank, static_cast<int32_t>(call.ranks->size()), call);
  }
  void OnLate(LateCalls* calls, int32_t rank, const SharedCall& call) {
    calls->OnLate(0, rank, static_cast<int32_t>(call.ranks->size()),
                  Late(call));
  }
  static std::string State(LateCalls* calls) {
    Archive archive;
    calls->Fields(archive);
    return archive.TakeBytes();
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

TEST_F(LateCallsTest, EachCallIsOneStandstill) {
  for (const uint64_t number : {10u, 500u}) {
    for (int32_t rank : {0, 1, 2}) Begin(&all_, rank, Call(kGroup, number, 4));
    for (int32_t rank : {0, 1, 2}) OnLate(&all_, rank, Call(kGroup, number, 4));
    Begin(&all_, 3, Call(kGroup, number, 4));
  }
  std::vector<bool> again;
  for (const Standstill& standstill : told_) again.push_back(standstill.again);
  EXPECT_THAT(again, ElementsAre(false, true, true, true,  //
                                 false, true, true, true));
}

// Ranks are read in any order: one may have been late in both calls before the
// other one is read.
TEST_F(LateCallsTest, AlsoIfRanksAreReadOneAfterTheOther) {
  for (int32_t rank : {0, 1}) {
    for (const uint64_t number : {10u, 12u}) {
      Begin(&all_, rank, Call(kGroup, number, 3));
      OnLate(&all_, rank, Call(kGroup, number, 3));
    }
  }
  EXPECT_EQ(std::count_if(told_.begin(), told_.end(),
                          [](auto& standstill) { return !standstill.again; }),
            2);
}

TEST_F(LateCallsTest, WhatARankBeganBehindMissingRecordsIsNotKnown) {
  for (int32_t rank : {0, 1, 2}) Begin(&all_, rank, Call(kGroup, 0, 3));
  all_.LoseCount(0, 1);
  Begin(&all_, 0, Call(kGroup, 1, 3));
  OnLate(&all_, 0, Call(kGroup, 1, 3));
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0].others,
              ElementsAre(Pair(1, "may have begun it (records are missing)"),
                          Pair(2, "has not begun it")));
}

TEST_F(LateCallsTest, AndProvesNoDeadlock) {
  for (int32_t rank : {0, 1}) Begin(&deadlocks_, rank, Call(kBackward, 0, 2));
  deadlocks_.LoseCount(0, 1);
  Begin(&deadlocks_, 0, Call(kBackward, 1, 2));
  OnLate(&deadlocks_, 0, Call(kBackward, 1, 2));
  Begin(&deadlocks_, 1, Call(kGroup, 1, 2));
  OnLate(&deadlocks_, 1, Call(kGroup, 1, 2));
  EXPECT_THAT(told_, SizeIs(0));
  // A rank that was late may have come back where records are missing.
  Begin(&deadlocks_, 0, Call(kForward, 0, 2));
  OnLate(&deadlocks_, 0, Call(kForward, 0, 2));
  deadlocks_.LoseCount(0, 0);
  deadlocks_.EndRank(0, 1, "ended in order in step 4");
  EXPECT_THAT(told_, SizeIs(0));
}

// Rank 0 saves for a long time, and all others wait for it.
TEST_F(LateCallsTest, ReportsAreFewAndTheLastOneHasAll) {
  constexpr int32_t kRanks = 1000;
  const SharedCall call = Call(kGroup, 3, kRanks);
  for (int32_t rank = 1; rank < kRanks; ++rank) Begin(&all_, rank, call);
  for (int32_t rank = 1; rank < kRanks; ++rank) OnLate(&all_, rank, call);
  EXPECT_LT(told_.size(), 20u);
  EXPECT_THAT(told_.back().late, SizeIs(kRanks - 1));
  EXPECT_THAT(told_.back().others, ElementsAre(Pair(0, "has not begun it")));
  EXPECT_EQ(all_.looks(), kRanks);
  // What is saved has the list of ranks once.
  EXPECT_LT(State(&all_).size(), 200u * kRanks);
  LateCalls restored(/*deadlock=*/false, listen_);
  const std::string state = State(&all_);
  Archive from(state);
  restored.Fields(from);
  EXPECT_TRUE(from.ok() && from.at_end()) << from.error();
  EXPECT_EQ(State(&restored), state);
  Begin(&restored, 0, call);
  EXPECT_TRUE(told_.back().again);
  EXPECT_THAT(told_.back().others, ElementsAre(Pair(0, "has begun it")));
}

TEST_F(LateCallsTest, ADeadlockIsFoundWithFewLooks) {
  constexpr int32_t kRanks = 1000;
  for (int32_t rank = 0; rank < kRanks; ++rank) {
    const SharedCall call = Call(rank % 2 ? kForward : kBackward, 0, kRanks);
    Begin(&deadlocks_, rank, call);
    OnLate(&deadlocks_, rank, call);
  }
  ASSERT_THAT(told_, SizeIs(1));
  EXPECT_THAT(told_[0].late, SizeIs(kRanks));
  EXPECT_LE(deadlocks_.looks(), 2u * kRanks);
}

TEST_F(LateCallsTest, OfAnAttemptThatEndedLittleIsKept) {
  for (int32_t rank : {0, 1}) {
    Begin(&all_, rank, Call(kGroup, 0, 2));
    OnLate(&all_, rank, Call(kGroup, 0, 2));
  }
  for (int32_t rank : {0, 1}) all_.EndRank(0, rank, "ended in order");
  EXPECT_LT(State(&all_).size(), 60u);
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
