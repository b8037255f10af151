#include "ctl/run/verdict.h"

#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

VerdictInput Checked(const std::string& run_text) {
  VerdictInput input;
  input.run = "r1";
  input.check_set = "s";
  v1::Run run;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(run_text, &run));
  input.drain.run = run;
  input.drain.finished = true;
  return input;
}

TEST(VerdictTest, ViolationsCoverageLossesAndWhereToLook) {
  VerdictInput input = Checked(R"(
      records: 100 dropped: 1 lost: 2
      check { decided: 3 total: 4 violated: 1 not_applied: 2
              unknown { reason: 'rank 1 lost' invariants: 1 }
              partly_unknown { reason: 'rank 0 lost' invariants: 3 } })");
  input.violations.resize(1);
  input.violations[0].set_id("v1");
  input.violations[0].set_text("t");
  EXPECT_EQ(VerdictText(input),
            "traincheck: run r1 against s: 1 incident\n"
            "traincheck:   alert At an unknown step: t (ranks -)\n"
            "traincheck:   coverage 3/4 rules decided (75%), 1 violated\n"
            "traincheck:   not applied 2 (rules of another experiment)\n"
            "traincheck:   1 rule undecided: rank 1 lost\n"
            "traincheck:   3 rules undecided in some windows: rank 0 lost\n"
            "traincheck:   100 records, 1 dropped, 2 lost\n"
            "traincheck:   traincheckctl violations list --run r1\n"
            "traincheck:   traincheckctl violations show v1\n"
            "traincheck:   traincheckctl runs show r1\n");
}

TEST(VerdictTest, AdviceIsCountedApart) {
  VerdictInput input = Checked("check { decided: 3 total: 4 violated: 3 }");
  input.violations.resize(3);
  for (int i = 0; i < 3; ++i) input.violations[i].set_id(std::to_string(i));
  input.violations[1].set_grade("advice");
  EXPECT_THAT(VerdictText(input),
              HasSubstr(": 2 incidents, 1 piece of advice\n"));
  input.violations[0].set_grade("advice");
  EXPECT_THAT(VerdictText(input),
              HasSubstr(": 1 incident, 2 pieces of advice\n"));
}

TEST(VerdictTest, WhatIsSilencedIsCountedApart) {
  VerdictInput input = Checked("check { decided: 3 total: 4 violated: 2 }");
  input.violations.resize(2);
  for (int i = 0; i < 2; ++i) input.violations[i].set_id(std::to_string(i));
  input.violations[0].set_silenced_by("s1: known");
  EXPECT_THAT(VerdictText(input),
              HasSubstr(": 1 incident\n"
                        "traincheck:   alert At an unknown step:  (ranks -)\n"
                        "traincheck:   1 violation is silenced: traincheckctl "
                        "violations list --all --run r1 shows it\n"));
  input.violations[1].set_silenced_by("s1: known");
  EXPECT_THAT(VerdictText(input), HasSubstr(": no incident\n"));
  EXPECT_THAT(VerdictText(input), HasSubstr("2 violations are silenced: "));
}

TEST(VerdictTest, IncidentsAreNamedAlertsFirstAndNotWithoutEnd) {
  VerdictInput input = Checked("check { decided: 3 total: 4 violated: 3 }");
  for (int i = 0; i < 13; ++i) {
    v1::Violation violation;
    violation.set_id(std::to_string(i));
    violation.set_headline("Since step " + std::to_string(i) + " it is wrong");
    violation.set_grade(i == 0 ? "advice" : "alert");
    input.violations.push_back(violation);
  }
  // One follows from the second, and one was found beside it.
  input.violations[2].set_incident("1");
  input.violations[2].set_cause("1");
  input.violations[3].set_incident("1");
  const std::string text = VerdictText(input);
  EXPECT_THAT(text, HasSubstr(": 10 incidents, 1 piece of advice\n"
                              "traincheck:   alert Since step 1 it is wrong "
                              "(ranks -); 1 violation follows from it, 1 "
                              "violation was found beside it\n"
                              "traincheck:   alert Since step 4 "));
  EXPECT_THAT(text, HasSubstr("violations show 1\n"));
  EXPECT_THAT(text, HasSubstr("step 12 it is wrong (ranks -)\n"
                              "traincheck:   and 1 more\n"));
}

TEST(VerdictTest, AHealthyRun) {
  const std::string text =
      VerdictText(Checked("records: 9 check { decided: 4 total: 4 }"));
  EXPECT_THAT(text, HasSubstr("run r1 against s: no incident\n"));
  EXPECT_THAT(text, Not(HasSubstr("violations list")));
  EXPECT_THAT(text, Not(HasSubstr("not applied")));
}

TEST(VerdictTest, NothingDecidedIsTheFirstThingSaid) {
  VerdictInput input = Checked("check { not_applied: 80 } records: 5");
  input.left_aside = "the rules are of others";
  EXPECT_EQ(VerdictText(input),
            "traincheck: NOTHING CHECKED: run r1 against s: none of 0 "
            "invariants was decided\n"
            "traincheck:   coverage 0/0 rules decided (0%), 0 violated\n"
            "traincheck:   not applied 80 (rules of another experiment)\n"
            "traincheck:   the rules are of others\n"
            "traincheck:   5 records, 0 dropped, 0 lost\n"
            "traincheck:   traincheckctl runs show r1\n");
  input.drain.finished = false;
  EXPECT_THAT(VerdictText(input), HasSubstr("was decided so far"));
  // What is violated was looked at, whatever the counts say so far.
  input.violations.resize(1);
  EXPECT_THAT(VerdictText(input), HasSubstr("1 incident so far"));
}

TEST(VerdictTest, AnUnfinishedCheckSaysSo) {
  VerdictInput input = Checked("check { decided: 4 total: 4 }");
  input.drain.finished = false;
  EXPECT_THAT(VerdictText(input), HasSubstr("no incident so far"));
}

TEST(VerdictTest, ACheckThatCouldNotRun) {
  EXPECT_THAT(VerdictText(Checked("check { error: 'set is gone' }")),
              HasSubstr("NOTHING CHECKED: run r1 against s: set is gone"));
  EXPECT_THAT(VerdictText(Checked("")), HasSubstr("without its set"));
}

TEST(VerdictTest, ARecordedRun) {
  VerdictInput input = Checked("records: 1");
  input.check_set = "";
  EXPECT_EQ(VerdictText(input),
            "traincheck: recorded run r1: 1 record, 0 dropped, 0 lost\n");
  input.drain.finished = false;
  EXPECT_THAT(VerdictText(input), HasSubstr("not all records have arrived"));
}

TEST(VerdictTest, NothingReachedTheServer) {
  VerdictInput input = Checked("");
  input.drain = DrainResult();
  input.drain.status = absl::NotFoundError("no run");
  const std::string text = VerdictText(input);
  EXPECT_THAT(text, StartsWith("traincheck: NOTHING CHECKED: run r1: no "
                               "records reached the server\n"));
  for (const char* why : {"env -i", "sudo", "docker run", "srun --export=NONE",
                          "TRAINCHECK_DISABLE"}) {
    EXPECT_THAT(text, HasSubstr(why));
  }
  input.drain.status = absl::UnavailableError("refused");
  EXPECT_THAT(VerdictText(input), HasSubstr("NOTHING CHECKED: run r1: the "));
  input.drain.status = absl::InternalError("broken");
  EXPECT_THAT(VerdictText(input), HasSubstr("the server says: broken"));
  input.check_set = "";
  EXPECT_THAT(VerdictText(input), Not(HasSubstr("NOTHING CHECKED")));
}

}  // namespace
}  // namespace traincheck::ctl
