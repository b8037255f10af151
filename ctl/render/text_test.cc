// What people read.
#include "ctl/render/infer_result.h"
#include "ctl/render/invariant.h"
#include "ctl/render/names.h"
#include "ctl/render/process.h"
#include "ctl/render/run.h"
#include "ctl/render/set.h"
#include "ctl/render/status.h"
#include "ctl/render/violation.h"
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
  EXPECT_THAT(text, HasSubstr("unknown 2: rank 1 lost"));
  EXPECT_THAT(text, HasSubstr("unknown in some windows 3: rank 0 lost"));
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
    first_seen_unix_ns: 1772355907042999999)";

TEST(ViolationTextTest, BlockNamesStepRanksRuleAndLine) {
  EXPECT_EQ(ViolationBlock(Parse<v1::Violation>(kViolation)),
            "traincheck: VIOLATION step 12 ranks 0,1 Consistent: parameter "
            "Net.fc.weight differs across ranks at post_step (train.py:41)\n"
            "    expected: equal\n"
            "    seen: 2 values\n"
            "    variables: Net.fc.weight, Net.fc.bias\n"
            "    evidence: no forward\n");
}

TEST(ViolationTextTest, BlockStaysShort) {
  auto violation = Parse<v1::Violation>(kViolation);
  for (int i = 0; i < 100; ++i) {
    violation.add_variables("v" + std::to_string(i));
    violation.add_evidence("line\nbreak " + std::to_string(i));
  }
  const std::string block = ViolationBlock(violation);
  EXPECT_THAT(block, HasSubstr("and 98 more\n"));
  EXPECT_THAT(block, HasSubstr("and 95 more lines"));
  EXPECT_LT(std::count(block.begin(), block.end(), '\n'), 15);
}

TEST(ViolationTextTest, AdviceIsNoViolation) {
  const auto advice =
      Parse<v1::Violation>("relation: 'R' text: 't' ranks: 3 grade: 'advice'");
  EXPECT_EQ(ViolationBlock(advice),
            "traincheck: advice at an unknown step rank 3 R: t\n");
  EXPECT_THAT(ViolationDetailText(advice), HasSubstr("grade: advice\n"));
}

TEST(ViolationTextTest, OneRankAndAnUnknownStep) {
  EXPECT_EQ(ViolationHeadline(
                Parse<v1::Violation>("relation: 'R' text: 't' ranks: 3")),
            "at an unknown step rank 3 R: t");
}

TEST(ViolationTextTest, ALineOfAWatchHasItsTime) {
  EXPECT_EQ(ViolationLine(Parse<v1::Violation>(
                "id: 'v' run: 'a' relation: 'R' text: 't' ranks: 3 "
                "first_step: 1 first_seen_unix_ns: 1772355907042999999")),
            "2026-03-01T09:05:07.042Z v a step 1 rank 3 R: t\n");
}

TEST(ViolationTextTest, TableAndDetail) {
  const auto violation = Parse<v1::Violation>(kViolation);
  EXPECT_EQ(ViolationsTable({violation}),
            "ID  RUN  STATUS  GRADE  STEPS  COUNT  FIRST SEEN                "
            "RANKS  "
            "RELATION    SITE         TEXT\n"
            "v1  a    open    alert  12-14      3  2026-03-01T09:05:07.042Z  "
            "0,1    "
            "Consistent  train.py:41  parameter Net.fc.weight differs across "
            "ranks at post_step\n");
  EXPECT_THAT(ViolationDetailText(violation),
              HasSubstr("evidence: no forward"));
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
