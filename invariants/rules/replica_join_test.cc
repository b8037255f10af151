#include "invariants/rules/replica_join.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <random>
#include <sstream>

namespace traincheck {
namespace {

// Writes the judgements down: "0:equal 1:differs(early) 1:differs(again)".
class Diary : public ReplicaJoinListener {
 public:
  void OnJudged(const ReplicaUnit& unit, const JudgedWindow& window) override {
    if (!text_.empty()) text_ += ' ';
    text_ += std::to_string(window.index) + ":";
    text_ += window.differs           ? "differs"
             : window.unknown.empty() ? "equal"
                                      : "unknown";
    if (window.varied) text_ += "*";
    if (window.early) text_ += "(early)";
    if (window.again) text_ += "(again)";
    reason_ = window.unknown;
  }
  void OnOver(const ReplicaUnit& unit) override { ++over_; }
  std::string Take() { return std::move(text_); }
  const std::string& reason() const { return reason_; }
  int over() const { return over_; }

 private:
  int over_ = 0;
  std::string text_;
  std::string reason_;
};

class ReplicaJoinTest : public testing::Test {
 protected:
  void Add(int32_t rank, uint64_t index, uint64_t digest,
           const std::string& unknown = "") {
    ReplicaWindow window;
    window.step = static_cast<int64_t>(index);
    window.values = {{1, 0, digest}};
    window.unknown = unknown;
    join_.Add({0, 0, ranks_, 0}, rank, index, std::move(window));
  }

  std::vector<int32_t> ranks_ = {0, 1};
  Diary diary_;
  ReplicaJoin join_{&diary_};
};

TEST_F(ReplicaJoinTest, WaitsForTheOther) {
  Add(0, 0, 5);
  EXPECT_EQ(diary_.Take(), "");
  Add(1, 0, 5);
  EXPECT_EQ(diary_.Take(), "0:equal");
  Add(1, 1, 6);
  Add(0, 1, 6);
  EXPECT_EQ(diary_.Take(), "1:equal*");
}

TEST_F(ReplicaJoinTest, SaysWhenAUnitIsOver) {
  Add(0, 0, 5);
  EXPECT_TRUE(join_.HasUnits(0));
  EXPECT_FALSE(join_.HasUnits(1));
  join_.EndRank(0, 1, "ended");
  EXPECT_EQ(diary_.Take(), "0:unknown");
  EXPECT_EQ(diary_.over(), 0);
  join_.EndRank(0, 0, "ended");
  EXPECT_EQ(diary_.over(), 1);
  EXPECT_FALSE(join_.HasUnits(0));
  EXPECT_TRUE(join_.HasEnded(0, 0));
}

TEST_F(ReplicaJoinTest, OneRankMayBeFarAhead) {
  for (uint64_t i = 0; i < 5; ++i) Add(0, i, i);
  for (uint64_t i = 0; i < 5; ++i) Add(1, i, i == 3 ? 99 : i);
  EXPECT_EQ(diary_.Take(), "0:equal 1:equal* 2:equal* 3:differs* 4:equal*");
}

TEST_F(ReplicaJoinTest, TwoOfThreeThatDifferAreToldAtOnce) {
  ranks_ = {0, 1, 2};
  Add(0, 0, 5);
  Add(2, 0, 6);
  EXPECT_EQ(diary_.Take(), "0:differs(early)");
  Add(1, 0, 5);
  EXPECT_EQ(diary_.Take(), "0:differs(again)");
}

TEST_F(ReplicaJoinTest, ButNotBeforeAnEarlierWindow) {
  ranks_ = {0, 1, 2};
  Add(0, 0, 5);
  Add(0, 1, 6);
  Add(2, 0, 5);
  Add(2, 1, 7);
  EXPECT_EQ(diary_.Take(), "");
  Add(1, 0, 4);
  EXPECT_EQ(diary_.Take(), "0:differs 1:differs(early)");
}

TEST_F(ReplicaJoinTest, AMemberThatEndedIsUnknown) {
  Add(0, 0, 5);
  Add(1, 0, 5);
  join_.EndRank(0, 1, "was killed in step 1");
  Add(0, 1, 6);
  EXPECT_EQ(diary_.Take(), "0:equal 1:unknown*");
  EXPECT_EQ(diary_.reason(), "rank 1 was killed in step 1");
}

TEST_F(ReplicaJoinTest, ASkippedWindowIsUnknown) {
  Add(0, 0, 5);
  Add(0, 1, 6);
  Add(1, 1, 6);
  EXPECT_EQ(diary_.Take(), "0:unknown 1:equal*");
}

TEST_F(ReplicaJoinTest, TheEndOfTheRunJudgesWhatIsOpen) {
  Add(0, 0, 5);
  join_.EndRun();
  EXPECT_EQ(diary_.Take(), "0:unknown");
  EXPECT_EQ(diary_.reason(), "rank 1 sent no records of it");
}

TEST_F(ReplicaJoinTest, WhatAMemberCouldNotReadIsUnknown) {
  Add(0, 0, 5, "w could not be read");
  Add(1, 0, 5);
  EXPECT_EQ(diary_.Take(), "0:unknown");
  Add(0, 1, 5, "w could not be read");
  Add(1, 1, 6);
  EXPECT_EQ(diary_.Take(), "1:differs");
}

TEST_F(ReplicaJoinTest, MembersWithOtherVariablesAreComparedWithAll) {
  ranks_ = {0, 1, 2, 3};
  const auto add = [&](int32_t rank, std::vector<ReplicaValue> values) {
    join_.Add({0, 0, ranks_, 0}, rank, 0,
              {.step = 0, .values = values, .unknown = ""});
    return diary_.Take();
  };
  EXPECT_EQ(add(0, {{1, 0, 5}}), "");
  EXPECT_EQ(add(1, {{2, 0, 7}}), "");
  EXPECT_EQ(add(2, {{1, 0, 5}}), "");
  EXPECT_EQ(add(3, {{2, 0, 8}}), "0:differs");
}

TEST_F(ReplicaJoinTest, EqualMembersOfWhichOneHasOtherVariablesAreUnknown) {
  ranks_ = {0, 1, 2};
  Add(1, 0, 5);
  join_.Add({0, 0, ranks_, 0}, 0, 0,
            {.step = 0, .values = {{2, 0, 7}}, .unknown = ""});
  Add(2, 0, 5);
  EXPECT_EQ(diary_.Take(), "0:unknown");
  EXPECT_EQ(diary_.reason(), "the members recorded different variables");
}

TEST_F(ReplicaJoinTest, ASlowMemberOpensAnEarlierWindow) {
  Add(0, 1, 5);
  Add(1, 0, 5);
  EXPECT_EQ(diary_.Take(), "0:unknown");
  Add(1, 1, 5);
  EXPECT_EQ(diary_.Take(), "1:equal");
}

// Members come in from the last to the first, which asks for the first each
// time.
TEST_F(ReplicaJoinTest, LooksGrowWithTheMembers) {
  const auto looks = [](int32_t members) {
    Diary diary;
    ReplicaJoin join(&diary);
    std::vector<int32_t> ranks(static_cast<size_t>(members));
    std::iota(ranks.begin(), ranks.end(), 0);
    for (uint64_t index = 0; index < 3; ++index) {
      for (auto rank = ranks.rbegin(); rank != ranks.rend(); ++rank) {
        join.Add({0, 0, ranks, 0}, *rank, index,
                 {.step = 0, .values = {{1, 0, index}}, .unknown = ""});
      }
    }
    EXPECT_EQ(diary.Take(), "0:equal 1:equal* 2:equal*");
    return join.looks();
  };
  EXPECT_LE(looks(1024), 16.5 * static_cast<double>(looks(64)));
}

// Of units whose members have all ended nothing stays, and of a rank a few
// bytes, however many units it was in.
TEST_F(ReplicaJoinTest, WhatIsOverIsForgotten) {
  const auto saved_size = [](uint32_t attempts, uint32_t units) {
    Diary diary;
    ReplicaJoin join(&diary);
    for (uint32_t attempt = 0; attempt < attempts; ++attempt) {
      for (uint32_t unit = 0; unit < units; ++unit) {
        for (const int32_t rank : {0, 1}) {
          join.Add({attempt, 0, {0, 1}, unit}, rank, 0,
                   {.step = 0, .values = {{1, 0, 5}}, .unknown = ""});
        }
      }
      join.EndRank(attempt, 0, "was lost in step 7");
      // The other one waits for nobody.
      join.Add({attempt, 0, {0, 1}, 0}, 1, 1,
               {.step = 1, .values = {{1, 0, 6}}, .unknown = ""});
      EXPECT_TRUE(diary.Take().ends_with(" 1:unknown*"));
      join.EndRank(attempt, 1, "was lost in step 7");
      // What comes all the same is not looked at.
      join.Add({attempt, 0, {0, 1}, 0}, 1, 2,
               {.step = 2, .values = {{1, 0, 6}}, .unknown = ""});
      EXPECT_EQ(diary.Take(), "");
    }
    Archive archive;
    join.Fields(archive);
    return archive.TakeBytes().size();
  };
  EXPECT_EQ(saved_size(1, 100), saved_size(1, 1));
  EXPECT_LE(saved_size(11, 3), saved_size(1, 3) + 10 * 2 * 4);
}

TEST_F(ReplicaJoinTest, FinalJudgementsDoNotDependOnTheOrder) {
  ranks_ = {0, 1, 2};
  std::mt19937 random(7);
  std::string first;
  for (int round = 0; round < 50; ++round) {
    Diary diary;
    ReplicaJoin join(&diary);
    uint64_t next[3] = {0, 0, 0};
    std::vector<int32_t> order;
    for (int32_t rank : ranks_) order.insert(order.end(), 6, rank);
    std::shuffle(order.begin(), order.end(), random);
    for (int32_t rank : order) {
      const uint64_t index = next[rank]++;
      ReplicaWindow window;
      // Rank 1 leaves the others at window 2, rank 2 at window 4.
      const uint64_t off =
          (rank == 1 && index >= 2) || (rank == 2 && index >= 4)
              ? static_cast<uint64_t>(rank)
              : 0;
      window.values = {{1, 0, index * 10 + off}};
      join.Add({0, 0, ranks_, 0}, rank, index, std::move(window));
    }
    std::string text = diary.Take();
    // Early words come and go with the order; what is final does not.
    std::string last;
    std::istringstream words(text);
    for (std::string word; words >> word;) {
      if (word.find("(early)") != std::string::npos) continue;
      last += word.substr(0, word.find('(')) + " ";
    }
    if (round == 0) first = last;
    EXPECT_EQ(last, first);
  }
  EXPECT_EQ(first,
            "0:equal 1:equal* 2:differs* 3:differs* 4:differs* 5:differs* ");
}

}  // namespace
}  // namespace traincheck
