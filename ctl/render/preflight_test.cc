#include "ctl/render/preflight.h"

#include "ctl/render/junit.h"
#include "ctl/render/sarif.h"
#include "gmock/gmock.h"
#include "google/protobuf/text_format.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

PreflightReport Clean() {
  PreflightReport report;
  report.run = Parse<v1::Run>(R"(
      id: 'train-1' world: 2 first_step: 0 last_step: 19
      check { decided: 2 total: 6 finished: true
              unknown { reason: 'a reason that is longer' invariants: 3 }
              unknown { reason: 'short' invariants: 1 } })");
  report.verdicts = {
      Parse<v1::InvariantVerdict>(
          "invariant_id: 'i1' relation: 'R' text: 'a < b' "
          "verdict: VERDICT_PASS"),
      Parse<v1::InvariantVerdict>(
          "invariant_id: 'i2' text: 'A checkpoint holds all.' relation: 'S' "
          "verdict: VERDICT_PASS"),
      Parse<v1::InvariantVerdict>(
          "invariant_id: 'i3' text: 'After a model has loaded a state' "
          "relation: 'S' verdict: VERDICT_UNKNOWN")};
  report.families = {{"i1", "core"}};
  return report;
}

PreflightReport WithFindings() {
  PreflightReport report = Clean();
  report.findings = {Parse<v1::Violation>(R"(
          id: 'v2' invariant_id: 'i2' relation: 'S' text: 'unusual'
          grade: 'advice' fix: 'Look.' sites: 'odd name.py:7'
          sites: 'nowhere')"),
                     Parse<v1::Violation>(R"(
          id: 'v1' invariant_id: 'i1' relation: 'R' text: 'a < b' ranks: 0
          grade: 'alert' first_step: 3 why: 'None says "no".' fix: 'Use a & b.'
          reference: 'https://x/y' sites: '/src/train.py:41')")};
  AlertsFirst(&report.findings);
  return report;
}

TEST(PreflightText, SaysWhatWasCheckedAndWhatNot) {
  EXPECT_EQ(PreflightText(Clean()),
            "preflight    train-1: 20 steps of 2 ranks\n"
            "checked      2 of 6 built-in rules: S 1 of 2, core 1 of 1\n"
            "not checked  1: short\n"
            "             3: a reason that is longer\n"
            "undecided    no rule on these was decided: evaluation, the end of "
            "an epoch, resuming\n"
            "written      files, checkpoints and trackers of the script, as in "
            "a real run\n"
            "found        nothing\n");
}

TEST(PreflightText, AlertsComeBeforeAdviceEachWithItsFix) {
  const std::string text = PreflightText(WithFindings());
  EXPECT_THAT(text, HasSubstr("found        1 incident, 1 piece of advice\n"
                              "traincheck: VIOLATION Since step 3: a < b "
                              "(rank 0, /src/train.py:41)\n"
                              "    seen at: /src/train.py:41\n"
                              "    rule: a < b\n"
                              "    why nothing fails: None says \"no\".\n"
                              "    what to do: Use a & b.\n"
                              "traincheck: advice "));
  EXPECT_THAT(text, HasSubstr("what to do: Look."));
}

TEST(PreflightText, SaysWhatIsMissing) {
  PreflightReport report;
  report.run.set_id("r");
  report.problem = "no records reached the server";
  const std::string text = PreflightText(report);
  EXPECT_THAT(text, HasSubstr("r: no step was closed\n"));
  EXPECT_THAT(text, HasSubstr("checked      0 of 0 built-in rules\n"
                              "             no records reached the server\n"));
  EXPECT_THAT(text, Not(HasSubstr("written")));
}

TEST(PreflightJson, HasTheFindingsWhole) {
  const Json json = PreflightJson(WithFindings());
  EXPECT_EQ(json["run"], "train-1");
  EXPECT_EQ(json["steps"], 20);
  EXPECT_EQ(json["coverage"]["decided"], 2);
  ASSERT_EQ(json["findings"].size(), 2u);
  EXPECT_EQ(json["findings"][0]["fix"], "Use a & b.");
  EXPECT_EQ(json["findings"][1]["grade"], "advice");
  ASSERT_EQ(json["incidents"].size(), 2u);
  EXPECT_EQ(json["incidents"][1]["id"], json["findings"][1]["id"]);
  EXPECT_EQ(json["incidents"][1]["follows"], Json::array());
  EXPECT_EQ(json["not_reached"],
            Json({"evaluation", "the end of an epoch", "resuming"}));
  const Json nothing = PreflightJson({});
  EXPECT_TRUE(nothing["steps"].is_null());
  EXPECT_TRUE(nothing["coverage"].is_null());
  EXPECT_EQ(nothing["not_reached"].size(), 4u);
}

TEST(JUnitReport, RulesAreCasesAndAlertsFailures) {
  const std::string xml = JUnitReport(WithFindings());
  EXPECT_THAT(xml, HasSubstr("<testsuite name=\"traincheckctl preflight\" "
                             "id=\"train-1\" tests=\"2\" failures=\"1\""));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"core\" name=\"a &lt; b\">\n"
                             "      <failure message=\"Since step 3: a &lt; b "
                             "(rank 0, /src/train.py:41)\" type=\"R\">"));
  EXPECT_THAT(xml, HasSubstr("Use a &amp; b."));
  EXPECT_THAT(xml, HasSubstr("None says &quot;no&quot;."));
  EXPECT_THAT(xml, HasSubstr("<testcase classname=\"S\" name=\"unusual\">\n"
                             "      <system-out>"));
  // What was not decided is no test.
  EXPECT_THAT(xml, Not(HasSubstr("has loaded")));
}

TEST(JUnitReport, ACleanRunHasCasesWithoutContent) {
  const std::string xml = JUnitReport(Clean());
  EXPECT_THAT(xml, HasSubstr("tests=\"2\" failures=\"0\""));
  EXPECT_THAT(xml,
              HasSubstr("<testcase classname=\"core\" name=\"a &lt; b\"/>\n"));
}

TEST(SarifReport, FindingsAreResultsAtTheirLines) {
  const Json json = SarifReport(WithFindings());
  EXPECT_EQ(json["version"], "2.1.0");
  ASSERT_EQ(json["runs"].size(), 1u);
  const Json& run = json["runs"][0];
  ASSERT_EQ(run["results"].size(), 2u);
  const Json& alert = run["results"][0];
  EXPECT_EQ(alert["ruleId"], "i1");
  EXPECT_EQ(alert["level"], "error");
  EXPECT_THAT(alert["message"]["text"].get<std::string>(),
              HasSubstr("What to do: Use a & b."));
  const Json& place = alert["locations"][0]["physicalLocation"];
  EXPECT_EQ(place["artifactLocation"]["uri"], "file:///src/train.py");
  EXPECT_EQ(place["region"]["startLine"], 41);
  const Json& advice = run["results"][1];
  EXPECT_EQ(advice["level"], "note");
  ASSERT_EQ(advice["locations"].size(), 1u);
  EXPECT_EQ(
      advice["locations"][0]["physicalLocation"]["artifactLocation"]["uri"],
      "odd%20name.py");
  const Json& rule = run["tool"]["driver"]["rules"][0];
  EXPECT_EQ(rule["id"], "i1");
  EXPECT_EQ(rule["helpUri"], "https://x/y");
  EXPECT_EQ(SarifReport(Clean())["runs"][0]["results"], Json::array());
}

}  // namespace
}  // namespace traincheck::ctl
