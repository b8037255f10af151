// The real daemon as a process, with real gRPC clients.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "invariants/rules/invariant.h"
#include "invariants/sets/set_json.h"
#include "server/daemon_for_testing.h"
#include "server/ingest/limits.h"
#include "server/ingest/test_batches.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;
using Clock = std::chrono::steady_clock;

class ServerTest : public testing::Test {
 protected:
  ServerTest()
      : folder_(testing::TempDir() + "/server-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        daemon_(folder_) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  std::unique_ptr<v1::Control::Stub> Control() const {
    return v1::Control::NewStub(daemon_.Channel());
  }
  v1::Run GetRun(const std::string& id) const {
    v1::Run run;
    v1::GetRunRequest request;
    request.set_run(id);
    grpc::ClientContext context;
    const grpc::Status status = Control()->GetRun(&context, request, &run);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return run;
  }
  // What it says goes to a file, as that of a service does.
  void StartWithLog(const std::string& path) {
    const int own = dup(STDERR_FILENO);
    const int file = open(path.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
    dup2(file, STDERR_FILENO);
    daemon_.Start();
    dup2(own, STDERR_FILENO);
    close(own);
    close(file);
  }
  // Streams batches [0, count) and leaves.
  void StreamWholeRun(const std::string& run, uint32_t pid, uint64_t count,
                      const std::string& check_set = "") {
    TestRelay relay(daemon_.Channel());
    v1::Hello hello = MakeHello(run, pid);
    hello.set_check_set(check_set);
    EXPECT_EQ(relay.Greet(hello).next_batch(), 0u);
    for (uint64_t i = 0; i < count; ++i) relay.Send(Request(StepBatch(i)));
    const grpc::Status status =
        relay.Leave(v1::END_KIND_CLEAN, {MakeReport(1, count, 0)});
    EXPECT_TRUE(status.ok()) << status.error_message();
  }

  const std::string folder_;
  DaemonProcess daemon_;
};

TEST_F(ServerTest, StoresAStreamAndShowsItsRun) {
  daemon_.Start();
  StreamWholeRun("run", 1, 20);
  const v1::Run run = GetRun("run");
  EXPECT_EQ(run.records(), 20u);
  EXPECT_EQ(run.lost(), 0u);
  EXPECT_EQ(run.last_step(), 19u);
  EXPECT_EQ(run.processes(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_FALSE(run.has_check());
}

TEST_F(ServerTest, ListsComeByThePageAndWithoutProcessesIfAsked) {
  daemon_.Start();
  for (const char* run : {"a-1", "a-2", "b-1"}) StreamWholeRun(run, 1, 2);
  const auto list = [&](const v1::ListRunsRequest& request) {
    grpc::ClientContext context;
    const auto control = Control();
    const auto reader = control->ListRuns(&context, request);
    std::vector<v1::Run> runs;
    for (v1::Run run; reader->Read(&run);) runs.push_back(run);
    EXPECT_TRUE(reader->Finish().ok());
    return runs;
  };
  v1::ListRunsRequest request;
  EXPECT_EQ(list(request).size(), 3u);
  EXPECT_EQ(list(request)[0].processes_size(), 1);
  request.set_newest(1);
  request.set_before("b-1");
  request.set_without_processes(true);
  const std::vector<v1::Run> page = list(request);
  ASSERT_EQ(page.size(), 1u);
  EXPECT_EQ(page[0].id(), "a-2");
  EXPECT_EQ(page[0].records(), 2u);
  EXPECT_EQ(page[0].processes_size(), 0);
  request.Clear();
  request.set_id_prefix("b");
  EXPECT_EQ(list(request).size(), 1u);
}

TEST_F(ServerTest, KilledAndStartedAgainItGoesOnWhereItWas) {
  daemon_.Start();
  std::string store_id;
  uint64_t sent = 0;
  for (int round = 0; round < 3; ++round) {
    TestRelay relay(daemon_.Channel());
    v1::Hello hello = MakeHello("run", 1);
    hello.set_resumes(round > 0);
    const v1::Welcome welcome = relay.Greet(hello);
    if (round == 0) store_id = welcome.store_id();
    EXPECT_EQ(welcome.store_id(), store_id);
    // All that was acknowledged is there; what was not may be.
    const uint64_t acknowledged = 10 * round;
    EXPECT_GE(welcome.next_batch(), acknowledged);
    EXPECT_LE(welcome.next_batch(), sent);
    for (uint64_t i = welcome.next_batch(); i < acknowledged + 10; ++i) {
      relay.Send(Request(StepBatch(i)));
    }
    EXPECT_TRUE(relay.AwaitAcknowledged(acknowledged + 10));
    sent = acknowledged + 15;
    for (uint64_t i = acknowledged + 10; i < sent; ++i) {
      relay.Send(Request(StepBatch(i)));
    }
    daemon_.Kill();
    daemon_.Start();
  }
  TestRelay relay(daemon_.Channel());
  v1::Hello hello = MakeHello("run", 1);
  hello.set_resumes(true);
  for (uint64_t i = relay.Greet(hello).next_batch(); i < 40; ++i) {
    relay.Send(Request(StepBatch(i)));
  }
  EXPECT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {MakeReport(1, 40, 0)}).ok());
  const v1::Run run = GetRun("run");
  EXPECT_EQ(run.processes_size(), 1);
  EXPECT_EQ(run.records(), 40u);
  EXPECT_EQ(run.lost(), 0u);
  EXPECT_EQ(run.processes(0).rings(0).stored_position(), 40 * 24u);
}

TEST_F(ServerTest, GarbageEndsItsOwnStreamOnly) {
  daemon_.Start();
  TestRelay bystander(daemon_.Channel());
  bystander.Greet(MakeHello("run", 1));

  grpc::GenericStub stub(daemon_.Channel());
  grpc::ClientContext context;
  grpc::CompletionQueue queue;
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    queue.Next(&tag, &ok);
    return ok;
  };
  auto garbage =
      stub.PrepareCall(&context, "/traincheck.v1.Ingest/Stream", &queue);
  garbage->StartCall(nullptr);
  await();
  const grpc::Slice bytes("\xff\xff\xff\xff this is not a protobuf message");
  garbage->Write(grpc::ByteBuffer(&bytes, 1), nullptr);
  await();
  grpc::Status status;
  garbage->Finish(&status, nullptr);
  await();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("is not an IngestRequest"));

  bystander.Send(Request(StepBatch(0)));
  EXPECT_TRUE(bystander.AwaitAcknowledged(1));
}

// Anybody with a token can make such streams as fast as he likes.
TEST_F(ServerTest, AFloodOfBadStreamsLeavesFewLines) {
  const std::string log = folder_ + "/log";
  StartWithLog(log);
  constexpr int kStreams = 200;
  const auto channel = daemon_.Channel();
  for (int i = 0; i < kStreams; ++i) {
    TestRelay relay(channel);
    relay.Send(Request(StepBatch(0)));
    EXPECT_FALSE(relay.End().ok());
  }
  const auto count = [&log](const std::string& text) {
    std::ifstream file(log);
    int lines = 0;
    for (std::string line; std::getline(file, line);) {
      lines += line.find(text) != std::string::npos;
    }
    return lines;
  };
  EXPECT_TRUE(
      WaitUntil([&] { return count("further streams have ended") > 0; }));
  EXPECT_GT(count("stream ends "), 0);
  // Twenty every ten seconds.
  EXPECT_LE(count("stream ends "), kStreams / 2);
}

TEST_F(ServerTest, WhatIsNotAllowedIsNamed) {
  daemon_.Start();
  {
    TestRelay relay(daemon_.Channel());
    v1::Hello hello = MakeHello("run", 1);
    hello.set_format_version_min(70);
    hello.set_format_version_max(71);
    relay.Send(Request(hello));
    const grpc::Status status = relay.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::UNIMPLEMENTED);
    EXPECT_THAT(status.error_message(), HasSubstr("70 to 71"));
  }
  {
    TestRelay relay(daemon_.Channel());
    relay.Send(Request(StepBatch(0)));
    EXPECT_THAT(relay.End().error_message(),
                HasSubstr("first message must be Hello"));
  }
  {
    TestRelay relay(daemon_.Channel());
    relay.Greet(MakeHello("run", 2));
    v1::Batch batch = StepBatch(0);
    batch.set_payload(std::string(3 * kMaxPayloadBytes, 'x'));
    relay.Send(Request(batch));
    const grpc::Status status = relay.End();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
    EXPECT_THAT(status.error_message(), HasSubstr("the limit is 2097152"));
  }
  {
    TestRelay relay(daemon_.Channel());
    relay.Greet(MakeHello("run", 3));
    v1::Batch corrupt = StepBatch(0);
    corrupt.set_payload("no zstd");
    relay.Send(Request(corrupt));
    EXPECT_TRUE(relay.AwaitAcknowledged(1));
  }
  EXPECT_EQ(GetRun("run").quarantined_batches(), 1u);
}

TEST_F(ServerTest, AClientThatSaysNothingIsClosed) {
  daemon_.Start({"--hello-timeout", "0.2"});
  TestRelay greeted(daemon_.Channel());
  greeted.Greet(MakeHello("run", 1));
  TestRelay silent(daemon_.Channel());
  const grpc::Status status = silent.End();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::DEADLINE_EXCEEDED);
  EXPECT_THAT(status.error_message(), HasSubstr("no Hello within"));
  greeted.Send(Request(StepBatch(0)));
  EXPECT_TRUE(greeted.AwaitAcknowledged(1));
}

TEST_F(ServerTest, ABrokenStreamDisconnectsItsProcess) {
  daemon_.Start({"--lost-after", "0.3"});
  { TestRelay(daemon_.Channel()).Greet(MakeHello("run", 1)); }
  const auto deadline = Clock::now() + kPatience;
  v1::Run run = GetRun("run");
  while (run.status() == v1::RUN_STATUS_RUNNING && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    run = GetRun("run");
  }
  EXPECT_EQ(run.status(), v1::RUN_STATUS_LOST);
  EXPECT_EQ(run.processes(0).state(), v1::PROCESS_STATE_LOST);
  EXPECT_FALSE(run.processes(0).has_lost());
}

// A file size limit stands for a full disk.
TEST_F(ServerTest, AFullDiskStopsAcknowledgingAndLosesNothing) {
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("run", 1));
  relay.Send(Request(StepBatch(0)));
  EXPECT_TRUE(relay.AwaitAcknowledged(1));
  daemon_.LimitFileSize(4096);
  for (uint64_t i = 1; i < 100; ++i) relay.Send(Request(StepBatch(i)));
  std::this_thread::sleep_for(std::chrono::seconds(2));
  EXPECT_EQ(GetRun("run").status(), v1::RUN_STATUS_RUNNING);  // it lives
  daemon_.LimitFileSize(RLIM_INFINITY);
  EXPECT_TRUE(relay.AwaitAcknowledged(100));
  daemon_.Kill();
  daemon_.Start();
  EXPECT_EQ(GetRun("run").records(), 100u);
}

TEST_F(ServerTest, ManyStreamsAtOnce) {
  daemon_.Start();
  std::vector<std::thread> threads;
  for (uint32_t pid = 1; pid <= 40; ++pid) {
    threads.emplace_back([this, pid] { StreamWholeRun("run", pid, 25); });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(GetRun("run").records(), 1000u);
  EXPECT_EQ(GetRun("run").lost(), 0u);
}

TEST_F(ServerTest, SigtermEndsItWithinFiveSeconds) {
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("run", 1));
  relay.Send(Request(StepBatch(0)));
  EXPECT_TRUE(relay.AwaitAcknowledged(1));
  grpc::ClientContext context;
  const auto control = Control();
  const auto watch =
      control->WatchViolations(&context, v1::WatchViolationsRequest());
  watch->WaitForInitialMetadata();

  const auto start = Clock::now();
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  EXPECT_LT(Clock::now() - start, std::chrono::seconds(5));
  EXPECT_EQ(relay.End().error_code(), grpc::StatusCode::UNAVAILABLE);
  v1::Violation violation;
  EXPECT_FALSE(watch->Read(&violation));
  daemon_.Start();
  EXPECT_EQ(GetRun("run").records(), 1u);
}

TEST_F(ServerTest, WatchEndsWithItsRun) {
  daemon_.Start();
  grpc::ClientContext context;
  v1::WatchViolationsRequest request;
  request.set_run("run");  // has yet to begin
  const auto control = Control();
  const auto watch = control->WatchViolations(&context, request);
  StreamWholeRun("run", 1, 1);
  v1::Violation violation;
  EXPECT_FALSE(watch->Read(&violation));
  EXPECT_TRUE(watch->Finish().ok());
}

TEST_F(ServerTest, ACheckAgainstNoSuchSetSaysSoUntilItIsThere) {
  daemon_.Start();
  StreamWholeRun("run", 1, 1, "nothing");
  const auto deadline = Clock::now() + kPatience;
  v1::Run run = GetRun("run");
  while (!run.check().finished() && Clock::now() < deadline) {
    std::this_thread::sleep_for(kPoll);
    run = GetRun("run");
  }
  EXPECT_THAT(run.check().error(), HasSubstr("no set \"nothing\""));
  InvariantSet set;
  set.name = "nothing";
  v1::ImportSetRequest request;
  request.set_json(ToJson(set).dump());
  v1::SetSummary summary;
  grpc::ClientContext context;
  ASSERT_TRUE(Control()->ImportSet(&context, request, &summary).ok());
  EXPECT_TRUE(WaitUntil([&] {
    const v1::CheckProgress check = GetRun("run").check();
    return check.finished() && check.error().empty();
  }));
}

TEST_F(ServerTest, ProcessesAreToldThePlanOfTheirSetAndItsChanges) {
  daemon_.Start();
  InvariantSet set;
  set.name = "rules";
  v1::ImportSetRequest imported;
  imported.set_json(ToJson(set).dump());
  {
    v1::SetSummary summary;
    grpc::ClientContext context;
    ASSERT_TRUE(Control()->ImportSet(&context, imported, &summary).ok());
  }
  v1::SetPlan of_set;
  {
    v1::GetSetPlanRequest request;
    request.set_name("rules");
    grpc::ClientContext context;
    ASSERT_TRUE(Control()->GetSetPlan(&context, request, &of_set).ok());
  }
  v1::Hello hello = MakeHello("run", 1);
  hello.set_role(v1::RUN_ROLE_TARGET);
  hello.set_check_set("rules");
  {
    TestRelay relay(daemon_.Channel());
    relay.Greet(hello);
    const v1::PlanChange first = relay.Receive().plan_change();
    EXPECT_EQ(first.version(), 1u);
    EXPECT_EQ(first.from_step(), 0u);
    EXPECT_EQ(first.plan(), of_set.json());
    relay.Send(Request(StepBatch(0)));
    EXPECT_TRUE(relay.AwaitAcknowledged(1));
    v1::RunPlan changed;
    const auto change = [&](const std::string& json) {
      v1::ChangeRunPlanRequest request;
      request.set_run("run");
      request.set_json(json);
      grpc::ClientContext context;
      return Control()->ChangeRunPlan(&context, request, &changed);
    };
    const grpc::Status refused = change(R"({"format": 1, "mode": "some"})");
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
    EXPECT_THAT(refused.error_message(), HasSubstr("mode"));
    ASSERT_TRUE(change(R"({"format": 1, "mode": "off"})").ok());
    EXPECT_EQ(changed.versions_size(), 2);
    const v1::PlanChange second = relay.Receive().plan_change();
    EXPECT_EQ(second.version(), 2u);
    EXPECT_EQ(second.from_step(), 2u);
  }
  daemon_.Kill();
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  hello.set_resumes(true);
  relay.Greet(hello);
  EXPECT_EQ(relay.Receive().plan_change().version(), 2u);
}

TEST_F(ServerTest, InferenceNamesWhatItCannotUse) {
  daemon_.Start();
  TestRelay relay(daemon_.Channel());
  relay.Greet(MakeHello("running", 1));
  const auto infer = [this](const std::string& run, const std::string& set) {
    grpc::ClientContext context;
    v1::InferRequest request;
    request.add_runs(run);
    request.set_set(set);
    const auto control = Control();
    return control->Infer(&context, request)->Finish();
  };
  EXPECT_EQ(infer("missing", "set").error_code(), grpc::StatusCode::NOT_FOUND);
  EXPECT_EQ(infer("running", "a b").error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  const grpc::Status status = infer("running", "set");
  EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_THAT(status.error_message(), HasSubstr("run running has not ended"));
}

// In a folder where others may write, as /tmp.
TEST_F(ServerTest, ThePortFileFollowsNoLink) {
  const std::string precious = folder_ + "/precious";
  std::ofstream(precious) << "precious";
  std::filesystem::create_symlink(precious, folder_ + "/address.new");
  daemon_.Start();
  EXPECT_EQ(std::filesystem::file_size(precious), 8u);
  EXPECT_EQ(std::filesystem::status(folder_ + "/address").permissions(),
            std::filesystem::perms(0600));
}

TEST_F(ServerTest, UsageErrorsExitWithTwoAndTouchNothing) {
  daemon_.Spawn({"--data-dir", folder_ + "/data", "--listen", "0.0.0.0:0"});
  EXPECT_EQ(daemon_.Wait(), 2);
  daemon_.Spawn({"--listen", "127.0.0.1:0"});
  EXPECT_EQ(daemon_.Wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/data"));
}

}  // namespace
}  // namespace traincheck::server
