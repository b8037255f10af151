#include "ctl/render/feedback.h"

#include "ctl/render/confidence.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

constexpr char kMark[] = R"(
    violation: 'v2' run: 'r1' mark: 'false-alarm' comment: 'meant so'
    by: 'alice@node7' since_unix_ns: 1772355907042999999 through: 'v1')";

TEST(FeedbackTextTest, ShowSaysWhoMarkedItAndWhichSilenceCoversIt) {
  ViolationFeedback feedback;
  EXPECT_EQ(ViolationFeedbackText(feedback), "");
  feedback.mark = Parse<v1::Mark>(kMark);
  feedback.silence = Parse<v1::Silence>(R"(
      id: '1a2b' comment: 'known' by: 'bob@\033x' until_unix_ns: 1772355908000000000
      since_unix_ns: 1772355907042999999)");
  EXPECT_EQ(ViolationFeedbackText(feedback),
            "    marked: false-alarm by alice@node7, 2026-03-01T09:05:07.042Z, "
            "with v1: meant so\n"
            "    silenced: until 2026-03-01T09:05:08.000Z by bob@\\u{1b}x, "
            "2026-03-01T09:05:07.042Z: known; traincheckctl silences remove "
            "1a2b ends it\n");
  Json json;
  AddViolationFeedback(feedback, &json);
  EXPECT_EQ(json["marked_by"], "alice@node7");
  EXPECT_EQ(json["marked_through"], "v1");
  EXPECT_EQ(json["silence"]["id"], "1a2b");
  EXPECT_EQ(json["silence"]["ended"], true);
}

TEST(ConfidenceTextTest, SaysWhatOtherRunsAndTheCheckOfThisOneAreWorth) {
  Confidence confidence;
  EXPECT_EQ(ConfidenceText(confidence), "");
  confidence.record = Parse<v1::RuleRecord>("confirmed: 2 false_alarms: 1");
  confidence.check = Parse<v1::CheckProgress>("decided: 3 total: 6");
  confidence.check->set_no_occasion(2);
  EXPECT_EQ(ConfidenceText(confidence),
            "    how sure: no other healthy run has decided this rule; people "
            "marked 2 of its violations in other runs as confirmed and 1 as a "
            "false alarm; this run decided 3 of 4 rules (75%)\n");
  confidence.record = Parse<v1::RuleRecord>("decided_runs: 14");
  confidence.check->set_total(2);  // no rule had an occasion
  EXPECT_EQ(ConfidenceText(confidence),
            "    how sure: 14 other healthy runs decided this rule, 0 of them "
            "violated it\n");
  Json json;
  AddConfidence(confidence, &json);
  EXPECT_EQ(json["rule_record"]["decided_runs"], 14);
  EXPECT_EQ(json["coverage"], Json());
}

TEST(FeedbackTextTest, AMarkSaysWhatItWasGivenTo) {
  auto reply = Parse<v1::MarkViolationReply>(
      "marks { violation: 'v1' mark: 'confirmed' }");
  EXPECT_EQ(MarkReplyText(reply, false), "violation v1 is marked confirmed\n");
  EXPECT_EQ(MarkReplyText(reply, true),
            "the mark confirmed of violation v1 is taken back\n");
  reply.add_marks();
  reply.set_kept(1);
  EXPECT_EQ(MarkReplyText(reply, false),
            "violation v1 is marked confirmed, with 1 other violation of its "
            "incident\n"
            "1 violation keeps the mark that somebody gave it before\n");
  EXPECT_EQ(MarkReplyJson(reply)["kept"], 1);
}

TEST(FeedbackTextTest, SilencesSayWhetherTheyHaveEnded) {
  const auto ended =
      Parse<v1::Silence>("id: 'a' rule: 'i1' comment: 'c' until_unix_ns: 1");
  const auto kept = Parse<v1::Silence>("id: 'b' variable: '*' comment: 'c'");
  const std::string table = SilencesTable({ended, kept});
  EXPECT_THAT(table, HasSubstr("a   ended   1970-01-01T00:00:00.000Z  i1"));
  EXPECT_THAT(table, HasSubstr("b   active  -"));
  EXPECT_EQ(SilenceJson(kept)["until"], Json());
  EXPECT_THAT(SilenceAddedText(kept), HasSubstr("b, until it is removed: "));
}

TEST(FeedbackTextTest, AReviewEndsEachRuleWithTheCommandThatDisablesIt) {
  auto review = Parse<v1::SetReview>(R"(
      set: 's' healthy: 'healthy is a run' healthy_runs: 12 without_record: 2
      max_share: 0.05 disabled: 1
      rules { rule: 'i1' text: 'a rule' decided_runs: 10 violated_runs: 3
              false_alarms: 2 confirmed: 1 })");
  EXPECT_EQ(
      SetReviewText(review),
      "healthy is a run\n"
      "12 runs are healthy, 2 of them without a record of what was "
      "decided (not checked while they trained, or by an earlier "
      "version)\n"
      "1 rule that would be listed is already disabled\n"
      "\n"
      "rule i1: a rule\n"
      "    violated in 3 of 10 healthy runs that decided it (30%); marks: "
      "2 false alarms, 1 confirmed\n"
      "    traincheckctl sets disable i1 --reason 'violated in 3 of 10 "
      "healthy runs that decided it (30%); marks: 2 false alarms, 1 "
      "confirmed'\n");
  EXPECT_EQ(SetReviewJson(review)["rules"][0]["violated_runs"], 3);
  review.clear_rules();
  EXPECT_THAT(SetReviewText(review),
              HasSubstr("no rule of s should be removed: none has a false "
                        "alarm or was violated in more than 5% of"));
}

TEST(FeedbackTextTest, StatusSaysWhatBecameOfTheCommand) {
  auto calls = Parse<v1::AlertCalls>("per_hour: 10 started: 3 held_back: 2");
  EXPECT_EQ(AlertCallsText(calls), "");
  EXPECT_EQ(AlertCallsJson(calls), Json());
  calls.set_configured(true);
  EXPECT_EQ(AlertCallsText(calls),
            "on alert: the command was started for 3 incidents, held back for "
            "2 (at most 10 an hour)\n");
  calls.set_failed(1);
  calls.set_last_failure("exit code 7");
  EXPECT_THAT(AlertCallsText(calls), HasSubstr(", the last: exit code 7\n"));
  EXPECT_EQ(AlertCallsJson(calls)["held_back"], 2);
}

}  // namespace
}  // namespace traincheck::ctl
