#include "checker/coverage.h"

#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

namespace traincheck {
namespace {

class CoverageTest : public testing::Test {
 protected:
  void Add(Outcome outcome, uint32_t attempt = 0, bool again = false) {
    Verdict verdict;
    verdict.outcome = outcome;
    verdict.attempt = attempt;
    verdict.again = again;
    if (outcome == Outcome::kUnknown) verdict.reason = "records are missing";
    coverage_.Add(rule_, verdict);
  }
  std::pair<uint64_t, uint64_t> Windows() const {
    const JudgedWindows windows = coverage_.WindowsOf(rule_);
    return {windows.decided, windows.unknown};
  }

  Coverage coverage_;
  const size_t rule_ = coverage_.AddRule();
};

// The reasons of three rules, two of which become unknown before the process's
// rank is known, in the order in which `steps` come.
std::map<std::string, uint32_t> ReasonsAfter(
    const std::vector<std::function<void(Coverage*)>>& steps) {
  Coverage coverage;
  for (int i = 0; i < 3; ++i) coverage.AddRule();
  for (const auto& step : steps) step(&coverage);
  CheckSummary summary;
  coverage.Summarize(
      0, [](size_t) { return ""; }, &summary);
  return {summary.unknown.begin(), summary.unknown.end()};
}

std::function<void(Coverage*)> UnknownFor(size_t rule, uint32_t process,
                                          const std::string& reason) {
  return [=](Coverage* coverage) {
    Verdict verdict;
    verdict.outcome = Outcome::kUnknown;
    verdict.process = process;
    verdict.reason = reason;
    coverage->Add(rule, verdict);
  };
}

std::function<void(Coverage*)> Placed(uint32_t process, int32_t rank) {
  return [=](Coverage* coverage) { coverage->Place(process, rank); };
}

using Reasons = std::map<std::string, uint32_t>;

TEST(CoverageReasonsTest, AProcessHasOneNameOnceItsRankIsKnown) {
  const auto before = UnknownFor(0, 1, "x of process 1, of process 1");
  EXPECT_EQ(ReasonsAfter({before}),
            Reasons({{"x of process 1, of process 1", 1}}));
  EXPECT_EQ(ReasonsAfter({before, Placed(1, 7),
                          UnknownFor(1, 1, "x of rank 7, of rank 7")}),
            Reasons({{"x of rank 7, of rank 7", 2}}));
  // It is not part of another process's name.
  EXPECT_EQ(ReasonsAfter({UnknownFor(0, 12, "x of process 12"),
                          UnknownFor(1, 1, "y of process 1"), Placed(1, 7)}),
            Reasons({{"x of process 12", 1}, {"y of rank 7", 1}}));
}

TEST(CoverageReasonsTest, TheLeastReasonIsTheSameInAllOrders) {
  // "process" is less than "q", and "rank" is not.
  const auto mine = UnknownFor(0, 1, "process 1 ends");
  const auto other = UnknownFor(0, 2, "q");
  const Reasons expected({{"q", 1}});
  EXPECT_EQ(ReasonsAfter({mine, other, Placed(1, 7)}), expected);
  EXPECT_EQ(ReasonsAfter({mine, Placed(1, 7), other}), expected);
  EXPECT_EQ(ReasonsAfter({other, mine, Placed(1, 7)}), expected);
}

TEST(CoverageReasonsTest, AProcessThatEndsWithoutARankKeepsItsName) {
  const auto end = [](Coverage* coverage) { coverage->LeaveUnplaced(1); };
  EXPECT_EQ(ReasonsAfter({UnknownFor(0, 1, "x of process 1"), end}),
            Reasons({{"x of process 1", 1}}));
}

using Counts = std::pair<uint64_t, uint64_t>;

TEST_F(CoverageTest, ARuleThatHadNoWindowHadNoOccasionUnlessItMayHaveHadOne) {
  EXPECT_TRUE(coverage_.IsSilent(rule_));
  EXPECT_EQ(coverage_.OutcomeOf(rule_, 0), Outcome::kUnknown);
  EXPECT_EQ(coverage_.ReasonOf(rule_, 0), "");
  EXPECT_EQ(Windows(), Counts(0, 0));
  CheckSummary seen, unseen;
  coverage_.Summarize(
      0, [](size_t) { return ""; }, &seen);
  EXPECT_EQ(seen.no_occasion, 1u);
  EXPECT_EQ(seen.unknown.size(), 0u);
  coverage_.Summarize(
      0, [](size_t) { return "records are gone"; }, &unseen);
  EXPECT_EQ(unseen.no_occasion, 0u);
  EXPECT_EQ(unseen.unknown.at("records are gone"), 1u);
}

TEST_F(CoverageTest, ARuleThatWasJudgedInAnAttemptIsNotSilentInTheNext) {
  Add(Outcome::kPass);
  EXPECT_FALSE(coverage_.IsSilent(rule_));
  CheckSummary summary;
  coverage_.Summarize(
      1, [](size_t) { return ""; }, &summary);
  EXPECT_EQ(summary.no_occasion, 0u);
  EXPECT_EQ(summary.unknown.size(), 1u);
}

TEST_F(CoverageTest, ProcessesInWhichSomethingWasDecidedAreKnown) {
  Verdict verdict;
  verdict.process = 3;
  verdict.outcome = Outcome::kUnknown;
  coverage_.Add(rule_, verdict);
  EXPECT_FALSE(coverage_.IsJudged(3, 0));
  verdict.outcome = Outcome::kPass;
  coverage_.Add(rule_, verdict);
  EXPECT_TRUE(coverage_.IsJudged(3, 0));
  EXPECT_FALSE(coverage_.IsJudged(4, 0));
  verdict.process.reset();
  coverage_.Add(rule_, verdict);
  EXPECT_TRUE(coverage_.IsJudged(4, 0));
  EXPECT_FALSE(coverage_.IsJudged(4, 1));
}

TEST_F(CoverageTest, WindowsThatAreUnknownAreCountedBesideTheOthers) {
  Add(Outcome::kPass);
  EXPECT_EQ(coverage_.ReasonOf(rule_, 0), "");
  Add(Outcome::kUnknown);
  Add(Outcome::kPass);
  EXPECT_EQ(coverage_.OutcomeOf(rule_, 0), Outcome::kPass);
  EXPECT_EQ(coverage_.ReasonOf(rule_, 0), "records are missing");
  EXPECT_EQ(Windows(), Counts(2, 1));
}

TEST_F(CoverageTest, AWindowThatIsReportedAgainCountsOnce) {
  Add(Outcome::kViolated);
  Add(Outcome::kViolated, 0, /*again=*/true);
  EXPECT_EQ(Windows(), Counts(1, 0));
}

TEST_F(CoverageTest, OnlyTheNewestAttemptCounts) {
  Add(Outcome::kPass);
  Add(Outcome::kUnknown, 1);
  EXPECT_EQ(Windows(), Counts(0, 1));
  Add(Outcome::kPass);  // of the former one, late
  EXPECT_EQ(Windows(), Counts(0, 1));
}

}  // namespace
}  // namespace traincheck
