// What people read.
#include "ctl/render/incident.h"
#include "ctl/render/infer_result.h"
#include "ctl/render/invariant.h"
#include "ctl/render/names.h"
#include "ctl/render/process.h"
#include "ctl/render/run.h"
#include "ctl/render/set.h"
#include "ctl/render/status.h"
#include "ctl/render/violation.h"
#include "ctl/render/zoom.h"
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

TEST(NamesTest, RankListsAreShort) {
  EXPECT_EQ(RankList({}), "-");
  EXPECT_EQ(RankList({0}), "0");
  EXPECT_EQ(RankList({0, 1}), "0,1");
  EXPECT_EQ(RankList({0, 1, 2, 3, 5, 7, 8}), "0-3,5,7,8");
}

TEST(NamesTest, StepRanges) {
  EXPECT_EQ(StepRange("3", "3"), "3");
  EXPECT_EQ(StepRange("3", "9"), "3-9");
  EXPECT_EQ(StepRange("-", "-"), "-");
}

TEST(RunTextTest, RowsOfTheTable) {
  const auto run = Parse<v1::Run>(R"(
      id: 'a' role: RUN_ROLE_TARGET status: RUN_STATUS_LOST first_step: 0
      last_step: 9 records: 5)");
  EXPECT_EQ(RunsTable({run}),
            "ID  EXPERIMENT  ROLE    STATUS  STARTED  WORLD  STEPS  RECORDS  "
            "DROPPED  LOST\n"
            "a   -           target  lost    -            -    0-9        5  "
            "      0     0\n");
}

TEST(RunTextTest, DetailSaysWhyInvariantsAreUndecided) {
  const auto run = Parse<v1::Run>(R"(
      id: 'a' check_set: 's' quarantined_batches: 2
      missing { attempt: 0 rank: 1 reason: 'never came' }
      missing { attempt: 0 rank: 3 reason: 'never came' }
      missing { attempt: 1 rank: 1 reason: 'never came' }
      check { finished: true decided: 3 total: 5 violated: 1
              unknown { reason: 'rank 1 lost' invariants: 2 }
              partly_unknown { reason: 'rank 0 lost' invariants: 3 } }
      processes { identity { pid: 7 kind: PROCESS_KIND_WORKER worker_id: 1 }
                  reason: 'killed' })");
  const std::string text = RunDetailText(run);
  EXPECT_THAT(text, HasSubstr("1 violated, 3/5 decided"));
  EXPECT_THAT(text, HasSubstr("2 rules undecided: rank 1 lost"));
  EXPECT_THAT(text,
              HasSubstr("3 rules undecided in some windows: rank 0 lost"));
  EXPECT_THAT(text, HasSubstr("2 batches that could not be decoded"));
  EXPECT_THAT(text,
              HasSubstr("\nmissing      rank 1, 3 of attempt 0: never came"
                        "\nmissing      rank 1 of attempt 1: never came\n"));
  EXPECT_THAT(text, HasSubstr("worker 1"));
  EXPECT_THAT(text, HasSubstr("killed"));
}

TEST(RunTextTest, ProcessesAreListedByAttemptAndRank) {
  const auto run = Parse<v1::Run>(R"(
      processes { identity { pid: 4 } attempt: 1 rank: 0 }
      processes { identity { pid: 3 owner_pid: 1 worker_id: 1 } }
      processes { identity { pid: 2 } rank: 1 }
      processes { identity { pid: 1 } rank: 0 }
      processes { identity { pid: 9 owner_pid: 1 worker_id: 0 } })");
  std::vector<uint32_t> pids;
  for (const v1::Process& process : ByPlace(run)) {
    pids.push_back(process.identity().pid());
  }
  EXPECT_THAT(pids, testing::ElementsAre(1, 2, 9, 3, 4));
  EXPECT_THAT(ProcessesTable(run),
              AllOf(testing::StartsWith("ATTEMPT  RANK  PID"),
                    HasSubstr("\n      1     0    4")));
}

TEST(RunTextTest, DetailSaysThatACheckCouldNotRun) {
  EXPECT_THAT(
      RunDetailText(Parse<v1::Run>("check { error: 'no set of that name' }")),
      HasSubstr("not checked: no set of that name"));
}

constexpr char kViolation[] = R"(
    id: 'v1' run: 'a' relation: 'Consistent'
    text: 'parameter Net.fc.weight differs across ranks at post_step'
    first_step: 12 last_step: 14 count: 3 ranks: [1, 0]
    variables: ['Net.fc.weight', 'Net.fc.bias'] sites: 'train.py:41'
    status: 'open' expected: 'equal' seen: '2 values' evidence: 'no forward'
    first_seen_unix_ns: 1772355907042999999
    headline: 'Since step 12 replicas differ' incident: 'v1' cause: 'v1'
    incident_grade: 'alert' basis: 'built-in rule' invariant_id: 'i1')";

TEST(ViolationTextTest, BlockNamesStepRanksRuleAndLine) {
  EXPECT_EQ(
      ViolationBlock(Parse<v1::Violation>(kViolation)),
      "traincheck: VIOLATION Since step 12 replicas differ (ranks 0,1, "
      "train.py:41)\n"
      "    seen at: train.py:41\n"
      "    rule: parameter Net.fc.weight differs across ranks at "
      "post_step\n"
      "    expected: equal\n"
      "    seen: 2 values\n"
      "    variables: Net.fc.weight, Net.fc.bias\n"
      "    evidence: no forward\n"
      "    shown as: alert of a built-in rule; traincheckctl silences add "
      "--rule i1 --comment WHY mutes it\n");
}

TEST(ViolationTextTest, BlockStaysShort) {
  auto violation = Parse<v1::Violation>(kViolation);
  for (int i = 0; i < 100; ++i) {
    violation.add_variables("v" + std::to_string(i));
    violation.add_evidence("line\nbreak " + std::to_string(i));
  }
  const std::string block = ViolationBlock(violation);
  EXPECT_THAT(block, HasSubstr("and 98 more\n"));
  EXPECT_THAT(block,
              HasSubstr("... and 95 more: traincheckctl violations show v1\n"));
  EXPECT_LT(std::count(block.begin(), block.end(), '\n'), 15);
}

TEST(ViolationTextTest, AdviceIsNoViolation) {
  const auto advice =
      Parse<v1::Violation>("relation: 'R' text: 't' ranks: 3 grade: 'advice'");
  EXPECT_EQ(ViolationBlock(advice),
            "traincheck: advice At an unknown step: t (rank 3)\n"
            "    rule: t\n");
  EXPECT_THAT(ViolationDetailText(advice), HasSubstr("grade: advice\n"));
}

TEST(ViolationTextTest, OneRankAndAnUnknownStep) {
  EXPECT_EQ(ViolationHeadline(
                Parse<v1::Violation>("relation: 'R' text: 't' ranks: 3")),
            "At an unknown step: t (rank 3)");
}

TEST(ViolationTextTest, ALineOfAWatchHasItsTime) {
  EXPECT_EQ(ViolationLine(Parse<v1::Violation>(
                "id: 'v' run: 'a' relation: 'R' text: 't' ranks: 3 "
                "first_step: 1 first_seen_unix_ns: 1772355907042999999")),
            "2026-03-01T09:05:07.042Z v a alert Since step 1: t (rank 3)\n");
  EXPECT_EQ(ViolationLine(Parse<v1::Violation>(kViolation)),
            "2026-03-01T09:05:07.042Z v1 a alert Since step 12 replicas differ "
            "(ranks 0,1, train.py:41) [alert of a built-in rule; traincheckctl "
            "silences add --rule i1 --comment WHY mutes it]\n");
}

TEST(ViolationTextTest, TableAndDetail) {
  const auto violation = Parse<v1::Violation>(kViolation);
  EXPECT_EQ(ViolationsTable({violation}),
            "ID  RUN  STATUS  GRADE  STEPS  COUNT  FIRST SEEN                "
            "RANKS  "
            "RELATION    SITE         WHAT\n"
            "v1  a    open    alert  12-14      3  2026-03-01T09:05:07.042Z  "
            "0,1    "
            "Consistent  train.py:41  Since step 12 replicas differ\n");
  EXPECT_THAT(ViolationDetailText(violation),
              HasSubstr("evidence: no forward"));
}

v1::Violation Follower(const std::string& id, const std::string& cause) {
  auto violation = Parse<v1::Violation>(kViolation);
  violation.set_id(id);
  violation.set_cause(cause);
  violation.set_headline("Since step 12 " + id + " is wrong");
  return violation;
}

// Whatever their order: by incident, each below what it follows from.
TEST(IncidentTextTest, WhatFollowsStandsBelowItsCause) {
  const auto lead = Parse<v1::Violation>(kViolation);
  auto other = Follower("o", "o");
  other.set_incident("o");
  const std::vector<Incident> incidents =
      IncidentsOf({Follower("c", "b"), other, Follower("b", "v1"), lead});
  ASSERT_EQ(incidents.size(), 2u);
  EXPECT_EQ(CountedIncidents(incidents), "2 incidents");
  EXPECT_EQ(incidents[0].lead().id(), "v1");
  EXPECT_EQ(
      OthersText(incidents[0]),
      "    what follows from it:\n"
      "      - Since step 12 b is wrong (ranks 0,1, train.py:41) [b]\n"
      "        - Since step 12 c is wrong (ranks 0,1, train.py:41) [c]\n");
  EXPECT_EQ(CountedOthers(incidents[0]), "2 violations follow from it");
  EXPECT_EQ(OthersText(incidents[1]), "");
  EXPECT_EQ(CountedOthers(incidents[1]), "");
}

TEST(IncidentTextTest, WhatHasNoKnownCauseStandsBesideTheLead) {
  const std::vector<Incident> incidents =
      IncidentsOf({Parse<v1::Violation>(kViolation), Follower("other", ""),
                   Follower("c", "other"), Follower("b", "v1")});
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(
      OthersText(incidents[0]),
      "    what follows from it:\n"
      "      - Since step 12 b is wrong (ranks 0,1, train.py:41) [b]\n"
      "    found beside it, cause not known:\n"
      "      - Since step 12 other is wrong (ranks 0,1, train.py:41) [other]\n"
      "        - Since step 12 c is wrong (ranks 0,1, train.py:41) [c]\n");
  EXPECT_EQ(CountedOthers(incidents[0]),
            "1 violation follows from it, 2 violations were found beside it");
  EXPECT_THAT(
      ViolationsTable({Parse<v1::Violation>(kViolation), Follower("other", ""),
                       Follower("c", "other"), Follower("b", "v1")}),
      AllOf(HasSubstr("  - Since step 12 b is wrong\n"),
            HasSubstr("  + Since step 12 other is wrong\n"),
            HasSubstr("    - Since step 12 c is wrong\n")));
}

// It may be an error of its own.
TEST(IncidentTextTest, AnAlertThatNothingExplainsHasAFix) {
  auto alert = Follower("o", "");
  alert.set_grade("alert");
  alert.set_fix("Call zero_grad().");
  auto advice = Follower("a", "");
  advice.set_grade("advice");
  advice.set_fix("Shuffle.");
  auto explained = Follower("b", "v1");
  explained.set_grade("alert");
  explained.set_fix("Nothing.");
  const std::vector<Incident> incidents =
      IncidentsOf({Parse<v1::Violation>(kViolation), alert, advice, explained});
  EXPECT_EQ(OthersText(incidents.at(0)),
            "    what follows from it:\n"
            "      - Since step 12 b is wrong (ranks 0,1, train.py:41) [b]\n"
            "    found beside it, cause not known:\n"
            "      - Since step 12 o is wrong (ranks 0,1, train.py:41) [o]\n"
            "        what to do: Call zero_grad().\n"
            "      - Since step 12 a is wrong (ranks 0,1, train.py:41) [a]\n");
}

constexpr char kBlamed[] = R"(
    id: 'v2' run: 'a' relation: 'APIArg' rung: 'mode' invariant_id: 'i2'
    text: 'The optimizer steps in training mode.' first_step: 7 last_step: 9
    count: 3 ranks: [2] sites: 'train.py:70' sites: 'train.py:41'
    callers: 'train.py:80 in main' apis: 'Adam.step' apis: 'Net.eval'
    expected: 'training mode' seen: 'evaluation mode; rank 2 differs from ranks 0, 1'
    evidence: 'its mode was set last by Net.eval at train.py:70'
    evidence: 'stage training' status: 'open' grade: 'alert'
    headline: 'Since step 7 the training goes on in evaluation mode'
    incident: 'v2' cause: 'v2' incident_grade: 'alert'
    basis: 'built-in rule' why: 'Dropout is off.' fix: 'Call train().'
    reference: 'https://x/y' first_seen_unix_ns: 1772355907042999999)";

v1::Violation FoundWith(const std::string& id, const std::string& cause) {
  auto violation = Follower(id, cause);
  violation.set_incident("v2");
  return violation;
}

// In the order in which people ask.
TEST(IncidentTextTest, TheWholeText) {
  const std::vector<Incident> incidents =
      IncidentsOf({Parse<v1::Violation>(kBlamed), FoundWith("b", "v2"),
                   FoundWith("o", "")});
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(
      IncidentText(incidents[0], {.closer_look = "    a closer look: 2 rows\n",
                                  .how_sure = "    how sure: 14 runs\n",
                                  .feedback = "    marked: confirmed\n"}),
      "incident v2, alert\n"
      "  Since step 7 the training goes on in evaluation mode (rank 2, "
      "train.py:70)\n"
      "    written at: train.py:70\n"
      "    called from: train.py:80 in main\n"
      "    seen at: train.py:41\n"
      "    rule: The optimizer steps in training mode.\n"
      "    expected: training mode\n"
      "    seen: evaluation mode; rank 2 differs from ranks 0, 1\n"
      "    evidence: its mode was set last by Net.eval at train.py:70\n"
      "    evidence: stage training\n"
      "    a closer look: 2 rows\n"
      "    what follows from it:\n"
      "      - Since step 12 b is wrong (ranks 0,1, train.py:41) [b]\n"
      "    found beside it, cause not known:\n"
      "      - Since step 12 o is wrong (ranks 0,1, train.py:41) [o]\n"
      "    why nothing fails: Dropout is off.\n"
      "    what to do: Call train().\n"
      "    see: https://x/y\n"
      "    how sure: 14 runs\n"
      "    shown as: alert of a built-in rule; traincheckctl silences add "
      "--rule i2 --comment WHY mutes it\n"
      "    marked: confirmed\n"
      "    relation: APIArg\n"
      "    invariant: i2\n"
      "    run: a, attempt 0\n"
      "    ranks: 2\n"
      "    steps: 7-9\n"
      "    count: 3 windows\n"
      "    status: open\n"
      "    grade: alert\n"
      "    first seen: 2026-03-01T09:05:07.042Z\n"
      "    calls: Adam.step, Net.eval\n");
}

TEST(ViolationTextTest, LinesThatWroteAValueAreToldFromThoseThatSawIt) {
  auto values = Parse<v1::Violation>(
      "relation: 'Consistent' rung: 'replicas' sites: 'a.py:1' sites: 'b.py:2' "
      "callers: 'c.py:3'");
  EXPECT_THAT(ViolationBlock(values),
              HasSubstr("    written at: a.py:1, b.py:2\n"
                        "    called from: c.py:3\n"));
  // Equal inputs were written by nobody.
  values.set_rung("data");
  EXPECT_THAT(ViolationBlock(values), HasSubstr("    seen at: a.py:1, b.py:2\n"
                                                "    called from: c.py:3\n"));
}

TEST(ZoomTextTest, WhatAZoomHasShown) {
  EXPECT_EQ(ZoomText({}), "");
  EXPECT_EQ(ZoomJson({}), Json());
  EXPECT_EQ(ZoomText(Parse<v1::ZoomReport>("plan_version: 2 from_step: 14")),
            "    a closer look, plan version 2: no rank has begun it; it "
            "applies from step 14 on\n");
  EXPECT_EQ(
      ZoomText(Parse<v1::ZoomReport>("plan_version: 2 unavailable: 'gone'")),
      "    a closer look, plan version 2: gone\n");
  auto report = Parse<v1::ZoomReport>(R"(
      plan_version: 2 from_step: 14
      ranks { rank: 0 steps: 8 over: true }
      ranks { rank: 1 steps: 6 missing: 'a hole' }
      observations { what: 'f at a.py:3' ranks: 0 ranks: 1
                     first_step: 14 last_step: 21 seen: '8 calls: p=0.5' })");
  EXPECT_EQ(ZoomText(report),
            "    a closer look, plan version 2: 6 to 8 steps on 2 ranks "
            "recorded in full, and it goes on\n"
            "      - records of rank 1 are missing: a hole\n"
            "      - f at a.py:3 (steps 14-21, ranks 0,1): 8 calls: p=0.5\n");
  const Json json = ZoomJson(report);
  EXPECT_EQ(json["ranks"][1]["missing"], "a hole");
  EXPECT_EQ(json["observations"][0]["seen"], "8 calls: p=0.5");
  EXPECT_EQ(json["unavailable"], Json());
}

TEST(IncidentTextTest, NoMemberIsLost) {
  // Without the lead, and with causes in a circle.
  const std::vector<Incident> incidents =
      IncidentsOf({Follower("a", "x"), Follower("b", "c"), Follower("c", "b")});
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0].members.size(), 3u);
}

TEST(IncidentTextTest, AViolationOfAnOlderServerIsAnIncident) {
  const auto alone = Parse<v1::Violation>("id: 'v' text: 't'");
  EXPECT_TRUE(Leads(alone));
  EXPECT_EQ(IncidentsOf({alone, Parse<v1::Violation>("id: 'w'")}).size(), 2u);
}

TEST(SetTextTest, TablesAndDetails) {
  const auto set = Parse<v1::SetDetail>(R"(
      summary { name: 's' version: 2 invariants: 1 runs: 'a' runs: 'b' }
      invariants { id: 'i' relation: 'R' scope: 'general' support: 4
                   text: 'rule' })");
  EXPECT_EQ(SetsTable({set.summary()}),
            "NAME  VERSION  INVARIANTS  CREATED  RUNS\n"
            "s           2           1  -        a,b\n");
  EXPECT_THAT(SetDetailText(set), HasSubstr("i   R         general"));
}

TEST(InvariantTextTest, DetailShowsTheDefinition) {
  EXPECT_THAT(InvariantDetailText(
                  Parse<v1::Invariant>("id: 'i' json: '{\"b\":1}' sets: 's'")),
              HasSubstr("\"b\": 1"));
}

TEST(InferTextTest, SaysWhatWasDropped) {
  const auto result = Parse<v1::InferResult>(R"(
      set: 's' version: 1 invariants: 12 runs: 'a'
      dropped { reason: 'violated' invariants: 3 })");
  EXPECT_EQ(InferResultText(result),
            "set s version 1: 12 invariants from a\n"
            "  dropped 3 hypotheses: violated\n");
}

TEST(StatusTextTest, SaysWhyARankIsMissing) {
  const auto status = Parse<v1::ServerStatus>(R"(
      version: '0.1' store_id: 'x' uptime_s: 61
      runs { id: 'a' world: 2 processes { identity { pid: 1 host: 'h' } rank: 0
             state: PROCESS_STATE_DISCONNECTED reason: 'stream broke' } })");
  const std::string text = StatusText(status);
  EXPECT_THAT(text, HasSubstr("traincheckd 0.1, up 1m01s, store x\n"));
  EXPECT_THAT(text, HasSubstr("rank 0: disconnected, pid 1 on h"));
  EXPECT_THAT(text, HasSubstr("(stream broke)"));
  EXPECT_THAT(text, HasSubstr("rank 1: missing (nothing heard"));
  EXPECT_THAT(StatusText(v1::ServerStatus()), HasSubstr("no run in progress"));
  EXPECT_THAT(text, Not(HasSubstr("quarantined")));
}

TEST(StatusTextTest, SaysWhyARunIsNotChecked) {
  const std::string text = StatusText(Parse<v1::ServerStatus>(
      "runs { id: 'a' check { error: 'there is no set \\'s\\'' } } "
      "runs { id: 'b' check { total: 1 } }"));
  EXPECT_THAT(text, HasSubstr("  not checked: there is no set 's'\n"));
  EXPECT_THAT(text, Not(HasSubstr("checked: \n")));
}

TEST(StatusTextTest, SaysWhoElseClaimsARankAndWhoHasNone) {
  const std::string text = StatusText(Parse<v1::ServerStatus>(R"(
      runs { id: 'a' world: 2
        processes { identity { pid: 9 host: 'a' } rank: 0
                    state: PROCESS_STATE_STREAMING reason: 'streaming' }
        processes { identity { pid: 17 host: 'b' } rank: 0
                    state: PROCESS_STATE_STREAMING
                    reason: 'refused: rank 0 is held by pid 9 on host a' }
        processes { identity { pid: 18 host: 'b' kind: PROCESS_KIND_MAIN }
                    state: PROCESS_STATE_STREAMING reason: 'streaming' }
        processes { identity { pid: 19 host: 'b' kind: PROCESS_KIND_OTHER }
                    state: PROCESS_STATE_STREAMING } })"));
  EXPECT_THAT(text, HasSubstr("  rank 0: streaming, pid 9 on a"));
  EXPECT_THAT(text, HasSubstr("  also rank 0: streaming, pid 17 on b"));
  EXPECT_THAT(text, HasSubstr("held by pid 9 on host a"));
  EXPECT_THAT(text, HasSubstr("  rank 1: missing (nothing heard"));
  EXPECT_THAT(text, HasSubstr("  no rank yet: streaming, pid 18 on b"));
  EXPECT_THAT(text, Not(HasSubstr("pid 19")));
}

}  // namespace
}  // namespace traincheck::ctl
