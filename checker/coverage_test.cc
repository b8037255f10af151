#include "checker/coverage.h"

#include <gtest/gtest.h>

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
