#include "ctl/run/gate.h"

#include "ctl/exit_codes.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

// `decided` of 80 in a check that is over.
GateFindings Decided(uint32_t decided, size_t violations = 0) {
  return {violations, decided, 80, true};
}

GateOptions Asked(std::optional<double> min_coverage,
                  bool fail_on_violation = true) {
  return {fail_on_violation, min_coverage};
}

TEST(GateTest, NothingIsAskedUnlessTheUserAsks) {
  EXPECT_EQ(PassGate({}, Decided(0, 3)).code, kExitDone);
  EXPECT_EQ(PassGate({}, GateFindings()).code, kExitDone);
}

TEST(GateTest, AViolationFailsIt) {
  EXPECT_EQ(PassGate(Asked({}), Decided(80, 1)).code, kExitViolations);
  EXPECT_EQ(PassGate(Asked(100), Decided(1, 1)).code, kExitViolations);
  EXPECT_EQ(PassGate(Asked(50, false), Decided(80, 1)).code, kExitDone);
}

TEST(GateTest, NothingDecidedIsTooLittle) {
  const GateResult result = PassGate(Asked({}), Decided(0));
  EXPECT_EQ(result.code, kExitTooLittle);
  EXPECT_EQ(result.reason,
            "too little was checked: 0 of 80 rules decided, and "
            "--fail-on-violation asks for one at least");
  EXPECT_EQ(PassGate(Asked({}), GateFindings()).code, kExitTooLittle);
  EXPECT_EQ(PassGate(Asked({}), Decided(1)).code, kExitDone);
}

TEST(GateTest, EachProcessThatTrainsHasOneDecided) {
  GateFindings findings = Decided(20);
  findings.unchecked_processes = {"rank 1", "rank 3"};
  const GateResult result = PassGate(Asked({}), findings);
  EXPECT_EQ(result.code, kExitTooLittle);
  EXPECT_THAT(result.reason, HasSubstr("but none in rank 1, rank 3"));
  // Who names a share asks for no more.
  EXPECT_EQ(PassGate(Asked(10), findings).code, kExitDone);
  EXPECT_EQ(PassGate({}, findings).code, kExitDone);
}

TEST(GateTest, CoverageIsAShareOfWhatApplies) {
  EXPECT_EQ(PassGate(Asked(50), Decided(40)).code, kExitDone);
  const GateResult result = PassGate(Asked(50, false), Decided(39));
  EXPECT_EQ(result.code, kExitTooLittle);
  EXPECT_THAT(result.reason, HasSubstr("39 of 80 rules decided (49%), and "
                                       "--min-coverage asks for 50%"));
  EXPECT_EQ(PassGate(Asked(100), Decided(80)).code, kExitDone);
  EXPECT_EQ(PassGate(Asked(0.5), GateFindings()).code, kExitTooLittle);
}

TEST(GateTest, ZeroAsksForNothing) {
  EXPECT_EQ(PassGate(Asked(0), GateFindings()).code, kExitDone);
  EXPECT_EQ(PassGate(Asked(0), Decided(1, 1)).code, kExitViolations);
}

TEST(GateTest, ACheckThatHasNotFinishedIsTooLittle) {
  GateFindings findings = Decided(80);
  findings.finished = false;
  const GateResult result = PassGate(Asked({}), findings);
  EXPECT_EQ(result.code, kExitTooLittle);
  EXPECT_THAT(result.reason, HasSubstr("--drain-timeout"));
}

}  // namespace
}  // namespace traincheck::ctl
