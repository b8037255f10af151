// Marks, silences and reviews, with the real daemon as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <utility>

#include "server/feedback_for_testing.h"

namespace traincheck::server {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::SizeIs;

constexpr uint64_t kSecondNs = 1'000'000'000;

uint64_t NowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

class ReviewTest : public FeedbackTest {
 protected:
  v1::SetReview Review(const std::string& set) {
    v1::ReviewSetRequest request;
    request.set_set(set);
    grpc::ClientContext context;
    v1::SetReview review;
    const grpc::Status status =
        Feedback()->ReviewSet(&context, request, &review);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return review;
  }

  v1::RuleRecord Record(const std::string& violation) {
    v1::GetRuleRecordRequest request;
    request.set_violation(violation);
    grpc::ClientContext context;
    v1::RuleRecord record;
    const grpc::Status status =
        Feedback()->GetRuleRecord(&context, request, &record);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return record;
  }
};

TEST_F(FeedbackTest, MarksOfAnIncidentSurviveAKillAndGoWithTheRun) {
  daemon_.Start();
  SaveRules(3);
  Train("run");
  v1::MarkViolationReply reply;
  ASSERT_TRUE(Mark(Lead("run").id(), "false-alarm", false, &reply).ok());
  EXPECT_EQ(reply.marks_size(), 3);
  daemon_.Kill();
  daemon_.Start();
  EXPECT_THAT(MarksOf("run"),
              ElementsAre("false-alarm", "false-alarm", "false-alarm"));
  EXPECT_EQ(Lead("run").mark_comment(), "looked at it");
  // The same violations of another run of the same name.
  Delete("run");
  Train("run");
  EXPECT_THAT(MarksOf("run"), ElementsAre("", "", ""));
}

TEST_F(FeedbackTest, WhatSomebodySaidOfOneStaysAndAMarkIsTakenBackWhole) {
  daemon_.Start();
  SaveRules(3);
  Train("run");
  const auto all = Violations("run");
  ASSERT_TRUE(Mark(all[1].id(), "confirmed").ok());
  EXPECT_THAT(MarksOf("run"), ElementsAre("", "confirmed", ""));
  v1::MarkViolationReply reply;
  ASSERT_TRUE(Mark(all[0].id(), "false-alarm", false, &reply).ok());
  EXPECT_EQ(reply.kept(), 1u);
  EXPECT_THAT(MarksOf("run"),
              ElementsAre("false-alarm", "confirmed", "false-alarm"));
  ASSERT_TRUE(Mark(all[0].id(), "none", false, &reply).ok());
  EXPECT_EQ(reply.marks_size(), 2);
  EXPECT_THAT(MarksOf("run"), ElementsAre("", "confirmed", ""));
  ASSERT_TRUE(Mark(all[0].id(), "confirmed", /*only=*/true).ok());
  EXPECT_THAT(MarksOf("run"), ElementsAre("confirmed", "confirmed", ""));
}

TEST_F(FeedbackTest, WhatCannotBeMarkedIsNamed) {
  daemon_.Start();
  SaveRules(1);
  Train("run");
  const std::string id = Lead("run").id();
  EXPECT_THAT(Mark("nothing", "confirmed").error_message(),
              HasSubstr("there is no violation \"nothing\""));
  EXPECT_THAT(Mark(id, "fine").error_message(),
              HasSubstr("a mark is confirmed, false-alarm or none"));
  EXPECT_THAT(Mark(id, "none").error_message(), HasSubstr("has no mark"));
  v1::MarkViolationRequest request;
  request.set_violation(id);
  request.set_mark("confirmed");
  request.set_comment("a\x1b[2Jb");
  grpc::ClientContext context;
  v1::MarkViolationReply reply;
  EXPECT_THAT(
      Feedback()->MarkViolation(&context, request, &reply).error_message(),
      HasSubstr("the comment has characters that cannot be printed"));
}

TEST_F(FeedbackTest, ASilenceCoversWhatWasFoundBeforeItUntilItEnds) {
  daemon_.Start();
  SaveRules(1);
  Train("run");
  const std::string rule = Lead("run").invariant_id();
  const std::string kept = SilenceRule(rule);
  EXPECT_EQ(Lead("run").silenced_by(), kept + ": known");
  EXPECT_EQ(Lead("run").incident_grade(), "advice");
  daemon_.Kill();
  daemon_.Start();
  EXPECT_EQ(Lead("run").silenced_by(), kept + ": known");
  ASSERT_TRUE(Unsilence(kept));
  EXPECT_EQ(Lead("run").silenced_by(), "");
  EXPECT_EQ(Lead("run").incident_grade(), "alert");
  // By time, without anybody's doing, and in a daemon that was killed.
  SilenceRule(rule, NowNs() + 2 * kSecondNs);
  EXPECT_NE(Lead("run").silenced_by(), "");
  daemon_.Kill();
  daemon_.Start();
  EXPECT_TRUE(WaitUntil([&] { return Lead("run").silenced_by().empty(); }));
}

TEST_F(FeedbackTest, TheNextLeadsWhereTheLeadIsSilenced) {
  daemon_.Start();
  SaveRules(3);
  Train("run");
  const auto all = Violations("run");
  SilenceRule(all[0].invariant_id());
  auto now = Violations("run");
  EXPECT_EQ(now[0].silenced_by(), "");
  std::map<std::string, std::string> incidents;
  for (const v1::Violation& violation : now) {
    EXPECT_EQ(violation.incident(), now[0].id());
    EXPECT_EQ(violation.incident_grade(), "alert");
  }
  // A stream that is opened now says the same, the lead last.
  grpc::ClientContext context;
  v1::WatchViolationsRequest request;
  request.set_run("run");
  const auto control = daemon_.Control();
  const auto watch = control->WatchViolations(&context, request);
  std::vector<v1::Violation> seen;
  v1::Violation violation;
  while (watch->Read(&violation)) seen.push_back(violation);
  ASSERT_THAT(seen, SizeIs(3));
  EXPECT_EQ(seen[2].id(), now[0].id());
  EXPECT_EQ(seen[2].incident(), seen[2].id());

  v1::Silence relation;
  relation.set_relation("EventContain");
  Silence(relation);
  for (const v1::Violation& one : Violations("run")) {
    EXPECT_NE(one.silenced_by(), "");
    EXPECT_EQ(one.incident_grade(), "advice");
    EXPECT_EQ(one.incident(), all[0].id());
  }
}

TEST_F(FeedbackTest, SilencesThatCoverTooMuchOrNothingAreRefused) {
  daemon_.Start();
  SaveRules(1);
  Train("run", "resnet");
  const std::string rule = Lead("run").invariant_id();
  EXPECT_THAT(Silence({}), HasSubstr("would cover everything"));
  std::string typed = rule;
  std::swap(typed[3], typed[4]);
  if (typed == rule) typed[3] = typed[3] == '0' ? '1' : '0';
  EXPECT_THAT(SilenceRule(typed),
              AllOf(HasSubstr("no set has a rule \"" + typed + "\""),
                    HasSubstr("the nearest is " + rule)));
  v1::Silence relation;
  relation.set_relation("EventContains");
  EXPECT_THAT(
      Silence(relation),
      HasSubstr("there is no relation \"EventContains\"; the nearest is "
                "EventContain"));
  EXPECT_THAT(SilenceRule(rule, NowNs() - 1), HasSubstr("in the past"));
  EXPECT_THAT(SilenceRule(rule, UINT64_MAX), HasSubstr("in the past"));
  v1::Silence comment;
  comment.set_rule(rule);
  comment.set_comment(std::string(5000, 'x'));
  EXPECT_THAT(Silence(comment), HasSubstr("the limit is 1024"));
  v1::Silence elsewhere;
  elsewhere.set_experiment("bert");
  Silence(elsewhere);
  EXPECT_EQ(Lead("run").silenced_by(), "");
  v1::Silence here;
  here.set_experiment("resnet");
  Silence(here);
  EXPECT_NE(Lead("run").silenced_by(), "");
  EXPECT_FALSE(Unsilence("0000"));
}

TEST_F(ReviewTest, AReviewNamesRulesThatHealthyRunsAndMarksSpeakAgainst) {
  daemon_.Start();
  SaveRules(2);
  Train("run");
  EXPECT_EQ(Review("rules").healthy_runs(), 0u);
  EXPECT_THAT(Review("rules").rules(), IsEmpty());
  Mark(Lead("run").id(), "false-alarm", /*only=*/true);
  // One of its alerts is not judged yet.
  v1::SetReview review = Review("rules");
  EXPECT_EQ(review.healthy_runs(), 0u);
  ASSERT_EQ(review.rules_size(), 1);
  EXPECT_EQ(review.rules(0).false_alarms(), 1u);
  EXPECT_EQ(review.rules(0).decided_runs(), 0u);
  Mark(Lead("run").id(), "false-alarm");
  review = Review("");
  EXPECT_EQ(review.healthy_runs(), 1u);
  ASSERT_EQ(review.rules_size(), 2);
  EXPECT_EQ(review.rules(0).decided_runs(), 1u);
  EXPECT_EQ(review.rules(0).violated_runs(), 1u);
  // Somebody says that it was right, after all.
  Mark(Lead("run").id(), "confirmed");
  review = Review("rules");
  EXPECT_EQ(review.healthy_runs(), 0u);
  EXPECT_THAT(review.rules(), IsEmpty());
  EXPECT_THAT(Review("builtin").rules(), IsEmpty());
}

TEST_F(ReviewTest, ARulesRecordIsThatOfOtherRuns) {
  daemon_.Start();
  SaveRules(2);
  Train("first");
  const std::string first = Lead("first").id();
  v1::RuleRecord record = Record(first);
  EXPECT_EQ(record.rule(), Lead("first").invariant_id());
  EXPECT_EQ(record.decided_runs(), 0u);
  EXPECT_EQ(record.false_alarms(), 0u);
  Mark(first, "false-alarm");
  // What people say of its own run is no evidence on it.
  record = Record(first);
  EXPECT_EQ(record.decided_runs(), 0u);
  EXPECT_EQ(record.false_alarms(), 0u);
  Train("second");
  record = Record(Lead("second").id());
  EXPECT_EQ(record.decided_runs(), 1u);
  EXPECT_EQ(record.violated_runs(), 1u);
  EXPECT_EQ(record.false_alarms(), 1u);
  v1::GetRuleRecordRequest request;
  request.set_violation("nobody");
  grpc::ClientContext context;
  EXPECT_EQ(Feedback()->GetRuleRecord(&context, request, &record).error_code(),
            grpc::StatusCode::NOT_FOUND);
}

TEST_F(FeedbackTest, ARuleThatHealthyRunsBreakAdvisesRunsThatBegin) {
  daemon_.Start();
  SaveRules(1);
  Train("first");
  EXPECT_EQ(Lead("first").grade(), "alert");
  Mark(Lead("first").id(), "false-alarm");
  daemon_.Kill();
  daemon_.Start();
  Train("second");
  EXPECT_EQ(Lead("second").grade(), "advice");
  EXPECT_EQ(Lead("second").incident_grade(), "advice");
  // What was found before stays what it was.
  EXPECT_EQ(Lead("first").grade(), "alert");
  // No run is healthy any more.
  Mark(Lead("first").id(), "confirmed");
  Mark(Lead("second").id(), "confirmed");
  Train("third");
  EXPECT_EQ(Lead("third").grade(), "alert");
}

}  // namespace
}  // namespace traincheck::server
