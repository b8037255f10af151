// The keys, their order and what stands where nothing is known: what scripts
// rely on.
#include "ctl/render/json.h"

#include "ctl/render/check_result.h"
#include "ctl/render/infer_result.h"
#include "ctl/render/invariant.h"
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

template <typename Message>
Message Parse(const std::string& text) {
  Message message;
  EXPECT_TRUE(google::protobuf::TextFormat::ParseFromString(text, &message));
  return message;
}

TEST(RunJsonTest, RowOfAnUnknownRunHasAllKeys) {
  EXPECT_EQ(JsonLine(RunRowJson(Parse<v1::Run>("id: 'a'"))),
            R"({"id":"a","experiment":null,"role":null,"status":null,)"
            R"("started":null,"ended":null,"attempts":0,"world":null,)"
            R"("first_step":null,"last_step":null,"records":0,"dropped":0,)"
            R"("lost":0})"
            "\n");
}

TEST(RunJsonTest, RowOfAKnownRun) {
  const auto run = Parse<v1::Run>(R"(
      id: 'a' experiment: 'cnn' role: RUN_ROLE_REFERENCE
      status: RUN_STATUS_ENDED started_unix_ns: 1772355907042999999
      ended_unix_ns: 1772355908000000000 attempts: 1 world: 2 first_step: 0
      last_step: 41 records: 18446744073709551615 dropped: 1 lost: 2)");
  EXPECT_EQ(JsonLine(RunRowJson(run)),
            R"({"id":"a","experiment":"cnn","role":"reference",)"
            R"("status":"ended","started":"2026-03-01T09:05:07.042Z",)"
            R"("ended":"2026-03-01T09:05:08.000Z","attempts":1,"world":2,)"
            R"("first_step":0,"last_step":41,"records":18446744073709551615,)"
            R"("dropped":1,"lost":2})"
            "\n");
}

TEST(RunJsonTest, DetailIsTheRowAndMore) {
  const auto run = Parse<v1::Run>(R"(
      id: 'a' check_set: 's' stored_bytes: 9 quarantined_batches: 1
      missing { attempt: 1 rank: 2 reason: 'never came' }
      check { caught_up: true decided: 3 total: 5 violated: 1 not_applied: 2
              no_occasion: 1
              unchecked_processes: 'rank 3'
              unknown { reason: 'rank 1 lost' invariants: 2 }
              partly_unknown { reason: 'rank 0 lost' invariants: 3 } })");
  const Json json = RunDetailJson(run);
  const Json row = RunRowJson(run);
  for (const auto& item : row.items()) {
    EXPECT_EQ(json[item.key()], item.value());
  }
  EXPECT_EQ(json.size(), row.size() + 9);
  EXPECT_EQ(json["processes"], Json::array());
  EXPECT_EQ(json["stored_bytes"], 9);
  EXPECT_EQ(json["quarantined_batches"], 1);
  EXPECT_EQ(json["kept"], false);
  EXPECT_TRUE(json["records_deleted"].is_null());
  EXPECT_EQ(json["check_set"], "s");
  EXPECT_EQ(JsonLine(json["missing"]),
            R"([{"attempt":1,"rank":2,"reason":"never came"}])"
            "\n");
  EXPECT_EQ(JsonLine(json["check"]),
            R"({"caught_up":true,"finished":false,"decided":3,"total":5,)"
            R"("violated":1,"not_applied":2,"no_occasion":1,)"
            R"("unchecked_processes":["rank 3"],"unknown":[{"reason":)"
            R"("rank 1 lost","invariants":2}],"partly_unknown":[{"reason":)"
            R"("rank 0 lost","invariants":3}],"error":null})"
            "\n");
}

TEST(RunJsonTest, ARunWithoutASetHasNoCheck) {
  const Json json = RunDetailJson(Parse<v1::Run>("id: 'a'"));
  EXPECT_TRUE(json["check"].is_null());
  EXPECT_TRUE(json["check_set"].is_null());
}

TEST(ProcessJsonTest, UnknownsAreNull) {
  EXPECT_EQ(
      JsonLine(ProcessJson(Parse<v1::Process>("identity { pid: 7 }"))),
      R"({"rank":null,"pid":7,"host":null,"kind":null,)"
      R"("worker_id":null,"owner_pid":null,"attempt":0,"state":null,"reason":null,)"
      R"("records":0,"dropped":0,"lost":null,"last_step":null,)"
      R"("rings":[]})"
      "\n");
}

TEST(ProcessJsonTest, AWorkerWithARing) {
  const auto process = Parse<v1::Process>(R"(
      identity { host: 'h' pid: 7 kind: PROCESS_KIND_WORKER worker_id: 0
                 owner_pid: 6 }
      attempt: 1 state: PROCESS_STATE_LOST reason: 'killed at step 12'
      records: 5 dropped: 1 lost: 0 last_step: 12
      rings { ring: 2 offered: 6 committed: 5 dropped: 1 stored: 5
              stored_position: 400 })");
  EXPECT_EQ(JsonLine(ProcessJson(process)),
            R"({"rank":null,"pid":7,"host":"h","kind":"worker",)"
            R"("worker_id":0,"owner_pid":6,"attempt":1,"state":"lost",)"
            R"("reason":"killed at step 12","records":5,"dropped":1,"lost":0,)"
            R"("last_step":12,"rings":[{"ring":2,"offered":6,"committed":5,)"
            R"("dropped":1,"stored":5,"stored_position":400}]})"
            "\n");
}

TEST(RanksJsonTest, NewestAttemptByRankAndTheMissing) {
  const auto run = Parse<v1::Run>(R"(
      world: 3
      processes { identity { pid: 1 } rank: 0 state: PROCESS_STATE_ENDED }
      processes { identity { pid: 4 } attempt: 1 rank: 2 lost: 3 }
      processes { identity { pid: 5 } attempt: 2 }
      processes { identity { pid: 3 host: 'h' } attempt: 1 rank: 0
                  state: PROCESS_STATE_STREAMING records: 8 })");
  const Json ranks = RanksJson(run);
  ASSERT_EQ(ranks.size(), 3u);
  EXPECT_EQ(JsonLine(ranks[0]),
            R"({"rank":0,"pid":3,"host":"h","state":"streaming",)"
            R"("reason":null,"records":8,"dropped":0,"lost":null,"others":[]})"
            "\n");
  EXPECT_EQ(ranks[1]["state"], "missing");
  EXPECT_TRUE(ranks[1]["pid"].is_null());
  EXPECT_TRUE(ranks[1]["reason"].is_string());
  EXPECT_EQ(ranks[2]["pid"], 4);
  EXPECT_EQ(ranks[2]["lost"], 3);
}

TEST(RanksJsonTest, TheLiveProcessHoldsThePlaceThatSeveralClaim) {
  const auto run = Parse<v1::Run>(R"(
      world: 1
      processes { identity { pid: 1 } rank: 0 state: PROCESS_STATE_LOST }
      processes { identity { pid: 2 } rank: 0 state: PROCESS_STATE_STREAMING }
      processes { identity { pid: 3 host: 'h' } rank: 0
                  state: PROCESS_STATE_STREAMING reason: 'held by pid 2' })");
  const Json ranks = RanksJson(run);
  ASSERT_EQ(ranks.size(), 1u);
  EXPECT_EQ(ranks[0]["pid"], 2);
  ASSERT_EQ(ranks[0]["others"].size(), 2u);
  EXPECT_EQ(JsonLine(ranks[0]["others"][0]),
            R"({"pid":3,"host":"h","state":"streaming",)"
            R"("reason":"held by pid 2"})"
            "\n");
}

TEST(ViolationJsonTest, RowAndDetail) {
  const auto violation = Parse<v1::Violation>(R"(
      id: 'v' run: 'a' attempt: 0 invariant_id: 'i' relation: 'Consistent'
      text: 't' first_step: 3 last_step: 9 count: 7 ranks: [0, 1]
      apis: 'f' variables: 'w' sites: 'train.py:41' status: 'open'
      expected: 'e' seen: 's' evidence: 'x' evidence: 'y'
      headline: 'Since step 3 h' incident: 'v' cause: 'v'
      incident_grade: 'alert' rung: 'setup' basis: 'b'
      mark: 'confirmed' silenced_by: 's: c'
      why: 'w' fix: 'f' first_seen_unix_ns: 1772355907042999999)");
  const std::string row =
      R"({"id":"v","run":"a","attempt":0,"invariant_id":"i",)"
      R"("relation":"Consistent","text":"t","grade":"alert","first_step":3,)"
      R"("last_step":9,"count":7,"ranks":[0,1],"apis":["f"],)"
      R"("variables":["w"],"sites":["train.py:41"],"status":"open",)"
      R"("incident":"v","first_seen":"2026-03-01T09:05:07.042Z","seen":"s",)"
      R"("headline":"Since step 3 h","cause":"v","incident_grade":"alert",)"
      R"("rung":"setup","mark":"confirmed","mark_comment":null,)"
      R"("silenced_by":"s: c","basis":"b")";
  EXPECT_EQ(JsonLine(ViolationRowJson(violation)), row + "}\n");
  EXPECT_EQ(JsonLine(ViolationDetailJson(violation)),
            row + R"(,"expected":"e","written_at":[],"called_from":[],)" +
                R"("evidence":["x","y"],"why":"w",)" +
                R"("fix":"f","reference":null})" + "\n");
}

TEST(ViolationJsonTest, AnIncidentHasItsViolationsBelow) {
  const auto of = [](const std::string& id, const std::string& cause) {
    v1::Violation violation;
    violation.set_id(id);
    violation.set_incident("lead");
    violation.set_cause(cause);
    return violation;
  };
  v1::CheckResult result;
  for (const v1::Violation& violation :
       {of("third", "second"), of("apart", ""), of("lead", "lead"),
        of("second", "lead")}) {
    *result.add_violations() = violation;
  }
  const Json json = CheckResultJson(result);
  EXPECT_EQ(json["violations"].size(), 4u);
  ASSERT_EQ(json["incidents"].size(), 1u);
  const Json& incident = json["incidents"][0];
  EXPECT_EQ(incident["id"], "lead");
  ASSERT_EQ(incident["follows"].size(), 2u);
  EXPECT_EQ(incident["follows"][0]["id"], "second");
  EXPECT_EQ(incident["follows"][1]["id"], "third");
  EXPECT_EQ(incident["follows"][1]["cause"], "second");
  ASSERT_EQ(incident["beside"].size(), 1u);
  EXPECT_EQ(incident["beside"][0]["id"], "apart");
}

TEST(ViolationJsonTest, StepsAreNullOutsideOfSteps) {
  const Json json = ViolationDetailJson(v1::Violation());
  EXPECT_TRUE(json["first_step"].is_null());
  EXPECT_TRUE(json["last_step"].is_null());
  EXPECT_TRUE(json["first_seen"].is_null());
  EXPECT_EQ(json["ranks"], Json::array());
}

TEST(InvariantJsonTest, RowAndDetail) {
  auto invariant = Parse<v1::Invariant>(R"(
      id: 'i' relation: 'EventContain' text: 't' scope: 'general' support: 4
      sets: 'a' json: '{"b":1}')");
  const std::string row =
      R"({"id":"i","relation":"EventContain","text":"t","scope":"general",)"
      R"("grade":"alert","support":4)";
  EXPECT_EQ(JsonLine(InvariantRowJson(invariant)), row + "}\n");
  EXPECT_EQ(JsonLine(InvariantDetailJson(invariant)),
            row + R"(,"sets":["a"],"definition":{"b":1}})" + "\n");
  invariant.set_json("{no json");
  EXPECT_TRUE(InvariantDetailJson(invariant)["definition"].is_null());
}

TEST(SetJsonTest, RowAndDetail) {
  const auto set = Parse<v1::SetDetail>(R"(
      summary { name: 's' version: 2 invariants: 1 runs: 'a' runs: 'b' }
      invariants { id: 'i' })");
  const std::string row =
      R"({"name":"s","version":2,"invariants":1,"created":null,)"
      R"("runs":["a","b"],"owner":null)";
  EXPECT_EQ(JsonLine(SetRowJson(set.summary())), row + "}\n");
  EXPECT_EQ(JsonLine(SetDetailJson(set)),
            row + R"(,"members":[{"id":"i","relation":"","text":"",)"
                  R"("scope":null,"grade":"alert","support":0}]})"
                  "\n");
}

TEST(InferResultJsonTest, JobIsNullForNow) {
  const auto result = Parse<v1::InferResult>(R"(
      set: 's' version: 1 invariants: 12 runs: 'a'
      dropped { reason: 'violated' invariants: 3 })");
  EXPECT_EQ(JsonLine(InferResultJson(result)),
            R"({"job":null,"set":"s","status":"done","invariants":12,)"
            R"("runs":["a"],"version":1,"dropped":[{"reason":"violated",)"
            R"("hypotheses":3}]})"
            "\n");
}

TEST(StatusJsonTest, ServerAndLiveRuns) {
  const auto status = Parse<v1::ServerStatus>(R"(
      version: '0.1' store_id: 'x' uptime_s: 1.5
      stored_bytes: 7 free_bytes: 8 store_error: 'full'
      runs { id: 'a' processes { identity { pid: 1 } rank: 0 } })");
  const Json json = StatusJson(status);
  EXPECT_EQ(JsonLine(json["server"]),
            R"({"version":"0.1","store_id":"x","uptime_s":1.5,)"
            R"("quarantined_batches":0,"stored_bytes":7,"free_bytes":8,)"
            R"("store_error":"full"})"
            "\n");
  ASSERT_EQ(json["runs"].size(), 1u);
  EXPECT_EQ(json["runs"][0]["id"], "a");
  EXPECT_EQ(json["runs"][0]["ranks"][0]["pid"], 1);
}

TEST(JsonTest, BrokenUtf8IsReplaced) {
  EXPECT_THAT(JsonLine(Json("a\xff")), testing::HasSubstr("\xef\xbf\xbd"));
  EXPECT_THAT(PrettyJson(Json("a\xff")), testing::EndsWith("\n"));
}

}  // namespace
}  // namespace traincheck::ctl
