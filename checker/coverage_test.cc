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

TEST_F(CoverageTest, ARuleThatHadNoWindowIsUnknown) {
  EXPECT_EQ(coverage_.OutcomeOf(rule_, 0), Outcome::kUnknown);
  EXPECT_EQ(coverage_.ReasonOf(rule_, 0),
            "what the rule is about was not seen");
  EXPECT_EQ(Windows(), Counts(0, 0));
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
