// `infer` and `jobs` as processes.
#include <signal.h>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

TEST_F(CommandsTest, InferSendsWhatItWasToldAndShowsStagesOnStderr) {
  server_.Edit([](FakeData& data) {
    data.infer.resize(3);
    data.infer[0].set_stage("load");
    data.infer[1].set_stage("learn");
    data.infer[2].mutable_result()->set_set("s2");
    data.infer[2].mutable_result()->set_invariants(12);
  });
  const ProcessResult result =
      Run({"infer", "--from", "r1,r2", "--set", "s2", "--relations",
           "Consistent,EventContain", "--exclude-functions", "a.*,b",
           "--max-chance", "0.001", "-o", "json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "load\nlearn\n");
  EXPECT_EQ(Json::parse(result.out)["invariants"], 12);
  server_.Edit([](FakeData& data) {
    EXPECT_EQ(data.last_infer.runs_size(), 2);
    EXPECT_EQ(data.last_infer.runs(1), "r2");
    EXPECT_EQ(data.last_infer.relations_size(), 2);
    const v1::InferOptions& options = data.last_infer.options();
    EXPECT_EQ(options.exclude_functions(1), "b");
    EXPECT_EQ(options.max_chance(), 0.001);
    EXPECT_EQ(data.last_infer.set(), "s2");
  });
}

TEST_F(CommandsTest, InferSaysWhatIsWrongInTheWordsOfItsOptions) {
  server_.Edit([](FakeData& data) {
    data.failure = grpc::Status(
        grpc::StatusCode::INVALID_ARGUMENT,
        "InferRequest.options.min_programs is 0; InferRequest.runs has 9");
  });
  std::vector<std::string> infer = {"infer", "--from", "r1", "--set", "s"};
  for (int i = 0; i < 2; ++i) {
    const ProcessResult result = Run(infer);
    EXPECT_EQ(result.code, 3);
    EXPECT_EQ(result.err, "traincheckctl: --min-programs is 0; --from has 9\n");
    infer.push_back("--detach");
  }
}

TEST_F(CommandsTest, InferDetachedPrintsTheJob) {
  server_.Edit([](FakeData& data) {
    data.jobs.resize(1);
    data.jobs[0].set_id("j3");
    data.jobs[0].set_status(v1::JOB_STATUS_QUEUED);
    data.jobs[0].mutable_request()->set_set("s2");
  });
  const std::vector<std::string> infer = {"infer", "--from", "r1",
                                          "--set", "s2",     "--detach"};
  const Json job = RunJson(infer);
  EXPECT_EQ(job["job"], "j3");
  EXPECT_EQ(job["id"], "j3");
  EXPECT_EQ(job["status"], "queued");
  EXPECT_EQ(job["set"], "s2");
  EXPECT_TRUE(job["invariants"].is_null());
  EXPECT_EQ(Run(infer).out,
            "job j3 is queued: see traincheckctl jobs show j3\n");
  server_.Edit([](FakeData& data) { EXPECT_EQ(data.last_infer.set(), "s2"); });
}

TEST_F(CommandsTest, AnInterruptedInferSaysThatItsJobGoesOn) {
  server_.Edit([](FakeData& data) {
    data.infer.resize(1);
    data.infer[0].set_job("j3");
    data.infer[0].set_stage("reading r1");
    data.infer_hangs = true;
  });
  for (const int number : {SIGINT, SIGTERM}) {
    Process infer(Ctl({"--server", server_.address(), "infer", "--from", "r1",
                       "--set", "s2"}));
    ASSERT_TRUE(infer.WaitForErr("reading r1"));
    kill(infer.pid(), number);
    const ProcessResult result = infer.Wait();
    EXPECT_EQ(result.code, 128 + number);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("job j3 goes on"));
    EXPECT_THAT(result.err, HasSubstr("traincheckctl jobs cancel j3"));
  }
}

TEST_F(CommandsTest, JobsListShowAndCancel) {
  server_.Edit([](FakeData& data) {
    data.jobs.resize(2);
    data.jobs[0].set_id("j1");
    data.jobs[0].set_status(v1::JOB_STATUS_FAILED);
    data.jobs[0].set_reason("its process was killed by signal 9");
    data.jobs[0].mutable_request()->add_runs("r1");
    data.jobs[1].set_id("j2");
    data.jobs[1].set_status(v1::JOB_STATUS_DONE);
    data.jobs[1].set_peak_bytes(3 << 20);
    data.jobs[1].mutable_result()->set_invariants(7);
  });
  const Json list = RunJson({"jobs", "list"});
  ASSERT_EQ(list.size(), 2u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : list[0].items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre("id", "set", "runs", "status",
                                                  "stage", "fraction", "reason",
                                                  "queued", "started", "ended",
                                                  "invariants", "peak_bytes"));
  EXPECT_EQ(list[0]["status"], "failed");
  EXPECT_EQ(list[0]["reason"], "its process was killed by signal 9");
  EXPECT_TRUE(list[0]["invariants"].is_null());
  EXPECT_EQ(list[1]["invariants"], 7);
  EXPECT_EQ(list[1]["peak_bytes"], 3 << 20);
  EXPECT_EQ(RunJson({"jobs", "show", "j1"})["runs"][0], "r1");
  EXPECT_THAT(Run({"jobs", "list"}).out, HasSubstr("killed by signal 9"));
  EXPECT_THAT(Run({"jobs", "show", "j2"}).out, HasSubstr("status      done"));
  EXPECT_EQ(RunJson({"jobs", "cancel", "j2"})["status"], "cancelled");
  EXPECT_EQ(Run({"jobs", "show", "j9"}).code, 3);
  EXPECT_EQ(Run({"jobs", "show"}).code, 2);
}

}  // namespace
}  // namespace traincheck::ctl
