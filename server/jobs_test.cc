// Inference jobs of the real daemon: in processes of their own, which may be
// killed, hang or take too much memory.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "base/sanitized.h"
#include "server/daemon_for_testing.h"
#include "server/ingest/test_batches.h"
#include "server/jobs/limits.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

constexpr int kCallsInBatch = 5000;  // 264 KB of records
// Enough for a process that can be stopped before it has read them.
constexpr uint64_t kManyBatches = 200;

// 0: none.
pid_t ParentOf(const std::string& pid) {
  std::ifstream file("/proc/" + pid + "/stat");
  std::string skipped;
  pid_t parent = 0;
  file >> skipped >> skipped >> skipped >> parent;
  return parent;
}

std::vector<pid_t> ChildrenOf(pid_t parent) {
  std::vector<pid_t> children;
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const std::string name = entry.path().filename();
    if (!std::all_of(name.begin(), name.end(), isdigit)) continue;
    if (ParentOf(name) == parent) children.push_back(std::stoi(name));
  }
  return children;
}

// 'R', 'S', 'T' of proc(5); 'X': there is no such process.
char StateOf(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  std::string stat;
  std::getline(file, stat);
  const size_t name_end = stat.rfind(')');
  return name_end == std::string::npos ? 'X' : stat.at(name_end + 2);
}

bool Exists(pid_t pid) { return kill(pid, 0) == 0; }

class JobsTest : public testing::Test {
 protected:
  JobsTest()
      : folder_(testing::TempDir() + "/jobs-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()),
        daemon_(folder_) {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  // A run of one process with `count` batches, ended.
  void StreamRun(const std::string& run, uint64_t count) {
    std::string records;
    for (uint32_t call = 1; call <= kCallsInBatch; ++call) {
      records += CallRecords(call);
    }
    v1::Batch batch = MakeBatch(0, {{.ring = 1,
                                     .from = 0,
                                     .bytes = records,
                                     .records = 2 * kCallsInBatch}});
    TestRelay relay(daemon_.Channel());
    relay.Greet(MakeHello(run, 1));
    for (uint64_t i = 0; i < count; ++i) {
      batch.set_number(i);
      batch.mutable_slices(0)->set_from(i * records.size());
      batch.mutable_slices(0)->set_to((i + 1) * records.size());
      ASSERT_TRUE(relay.Send(Request(batch)));
    }
    ASSERT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
    ASSERT_TRUE(WaitUntil([&] { return !IsRunning(run); }));
  }
  // A run that rules can be learned from.
  void StreamTraining(const std::string& run) {
    TestRelay relay(daemon_.Channel());
    relay.Greet(MakeHello(run, 1));
    for (const v1::Batch& batch : TrainingBatches()) {
      ASSERT_TRUE(relay.Send(Request(batch)));
    }
    ASSERT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
    ASSERT_TRUE(WaitUntil([&] { return !IsRunning(run); }));
  }
  bool IsRunning(const std::string& id) {
    v1::GetRunRequest request;
    request.set_run(id);
    v1::Run run;
    grpc::ClientContext context;
    EXPECT_TRUE(daemon_.Control()->GetRun(&context, request, &run).ok());
    return run.status() == v1::RUN_STATUS_RUNNING;
  }

  // The id of the new job.
  std::string StartJob(const std::string& run, const std::string& set) {
    v1::InferRequest request;
    request.add_runs(run);
    request.set_set(set);
    v1::Job job;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->StartInference(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_NE(job.id(), "");
    return job.id();
  }
  v1::Job GetJob(const std::string& id) {
    v1::GetJobRequest request;
    request.set_id(id);
    v1::Job job;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->GetJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job Cancel(const std::string& id) {
    v1::CancelJobRequest request;
    request.set_id(id);
    v1::Job job;
    grpc::ClientContext context;
    const grpc::Status status =
        daemon_.Control()->CancelJob(&context, request, &job);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return job;
  }
  v1::Job AwaitEnd(const std::string& id) {
    v1::Job job;
    EXPECT_TRUE(WaitUntil([&] {
      job = GetJob(id);
      return job.status() != v1::JOB_STATUS_QUEUED &&
             job.status() != v1::JOB_STATUS_RUNNING;
    }));
    return job;
  }
  // Without the daemon's own.
  std::vector<std::string> Sets() {
    std::vector<std::string> names;
    grpc::ClientContext context;
    const auto control = daemon_.Control();
    const auto reader = control->ListSets(&context, v1::ListSetsRequest());
    v1::SetSummary set;
    while (reader->Read(&set)) {
      if (set.name() != "builtin") names.push_back(set.name());
    }
    EXPECT_TRUE(reader->Finish().ok());
    return names;
  }

  // A job on a run of many batches whose process is stopped while it reads.
  pid_t StartHangingJob(std::string* id) {
    StreamRun("large", kManyBatches);
    for (int tries = 0; tries < 10; ++tries) {
      *id = StartJob("large", "never");
      const pid_t process = AwaitReader(*id);
      if (process == 0) continue;
      kill(process, SIGSTOP);
      // On a busy machine it may have ended before it is stopped.
      EXPECT_TRUE(WaitUntil([&] {
        const char state = StateOf(process);
        return state == 'T' || state == 'Z' || state == 'X';
      }));
      if (StateOf(process) == 'T' &&
          GetJob(*id).status() == v1::JOB_STATUS_RUNNING) {
        return process;
      }
    }
    ADD_FAILURE() << "each job has ended before its process was stopped";
    return 0;
  }
  // The process of a job that has begun to read; 0: the job has ended.
  pid_t AwaitReader(const std::string& id) {
    std::vector<pid_t> children;
    v1::Job job;
    EXPECT_TRUE(WaitUntil([&] {
      children = ChildrenOf(daemon_.pid());
      job = GetJob(id);
      return job.status() > v1::JOB_STATUS_RUNNING ||
             (!children.empty() && job.fraction() > 0);
    }));
    if (job.status() > v1::JOB_STATUS_RUNNING) return 0;
    return children.size() == 1 ? children[0] : 0;
  }

  // The daemon takes streams, answers and learns.
  void ExpectAllIsWell() {
    StreamTraining("small");
    const v1::Job job = AwaitEnd(StartJob("small", "good"));
    EXPECT_EQ(job.status(), v1::JOB_STATUS_DONE) << job.reason();
    EXPECT_THAT(Sets(), testing::ElementsAre("good"));
  }

  const std::string folder_;
  DaemonProcess daemon_;
};

TEST_F(JobsTest, AJobThatIsDoneShowsWhatItMade) {
  daemon_.Start();
  StreamTraining("small");
  const v1::Job job = AwaitEnd(StartJob("small", "set"));
  EXPECT_EQ(job.status(), v1::JOB_STATUS_DONE) << job.reason();
  EXPECT_EQ(job.id(), "j1");
  EXPECT_EQ(job.result().job(), "j1");
  EXPECT_EQ(job.result().version(), 1u);
  EXPECT_GT(job.result().invariants(), 0u);
  EXPECT_EQ(job.fraction(), 1);
  EXPECT_GT(job.peak_bytes(), 1u << 20);
  EXPECT_GE(job.started_unix_ns(), job.queued_unix_ns());
  EXPECT_GE(job.ended_unix_ns(), job.started_unix_ns());
  EXPECT_THAT(Sets(), testing::ElementsAre("set"));
  EXPECT_TRUE(ChildrenOf(daemon_.pid()).empty());
}

TEST_F(JobsTest, AKilledProcessFailsItsJobOnly) {
  daemon_.Start({"--job-memory", "3GiB"});
  std::string id;
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  kill(process, SIGKILL);
  const v1::Job job = AwaitEnd(id);
  EXPECT_EQ(job.status(), v1::JOB_STATUS_FAILED);
  EXPECT_THAT(job.reason(), HasSubstr("killed by signal 9 (Killed)"));
  EXPECT_THAT(job.reason(),
              HasSubstr("its memory limit is 3.0 GiB, it had reached "));
  ExpectAllIsWell();
}

TEST_F(JobsTest, MoreMemoryThanTheLimitFailsTheJobOnly) {
  if (kSanitized) GTEST_SKIP() << "it has no limit of memory";
  daemon_.Start({"--job-memory", "128MiB"});
  StreamRun("large", 800);
  const v1::Job job = AwaitEnd(StartJob("large", "never"));
  EXPECT_EQ(job.status(), v1::JOB_STATUS_FAILED);
  EXPECT_THAT(job.reason(), HasSubstr("more memory than its limit of 128 MiB"));
  EXPECT_THAT(job.reason(), HasSubstr("--job-memory"));
  EXPECT_GT(job.peak_bytes(), 32u << 20);
  ExpectAllIsWell();
}

TEST_F(JobsTest, AHangingProcessHoldsUpNobodyAndIsCancelled) {
  daemon_.Start();
  std::string id;
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  StreamRun("beside", 20);
  EXPECT_THAT(Sets(), testing::IsEmpty());
  const std::string second = StartJob("large", "second");
  EXPECT_EQ(GetJob(second).status(), v1::JOB_STATUS_QUEUED);
  EXPECT_EQ(Cancel(second).status(), v1::JOB_STATUS_CANCELLED);

  Cancel(id);
  EXPECT_EQ(AwaitEnd(id).status(), v1::JOB_STATUS_CANCELLED);
  EXPECT_FALSE(Exists(process));
  EXPECT_EQ(Cancel(id).status(), v1::JOB_STATUS_CANCELLED);
  ExpectAllIsWell();
}

TEST_F(JobsTest, ItsProcessIsSetApart) {
  daemon_.Start({"--job-memory", "1GiB"});
  std::string id;
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  const std::string folder = "/proc/" + std::to_string(process);
  EXPECT_EQ(getpgid(process), process);
  EXPECT_EQ(getpriority(PRIO_PROCESS, process), 10);
  rlimit memory;
  ASSERT_EQ(prlimit(process, RLIMIT_AS, nullptr, &memory), 0);
  if (!kSanitized) {
    EXPECT_EQ(memory.rlim_cur, 1u << 30);
  }
  // Nothing of the daemon's but the log: no database, no port.
  std::vector<std::string> files;
  for (const auto& entry :
       std::filesystem::directory_iterator(folder + "/fd")) {
    files.push_back(entry.path().filename());
  }
  EXPECT_THAT(files, testing::UnorderedElementsAre("0", "1", "2", "3"));
  std::string score;
  std::ifstream(folder + "/oom_score_adj") >> score;
  EXPECT_EQ(score, "1000");
}

TEST_F(JobsTest, AKilledDaemonLeavesNoProcessAndGoesOnWithItsQueue) {
  daemon_.Start();
  std::string id;
  StreamTraining("small");
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  const std::string queued = StartJob("small", "queued");
  const std::string cancelled = StartJob("large", "cancelled");
  Cancel(cancelled);
  daemon_.Kill();
  EXPECT_TRUE(WaitUntil([&] { return !Exists(process); }));

  daemon_.Start();
  EXPECT_EQ(GetJob(id).status(), v1::JOB_STATUS_FAILED);
  EXPECT_EQ(GetJob(id).reason(), "traincheckd stopped while it ran");
  EXPECT_EQ(GetJob(cancelled).status(), v1::JOB_STATUS_CANCELLED);
  EXPECT_EQ(AwaitEnd(queued).status(), v1::JOB_STATUS_DONE);
  EXPECT_THAT(Sets(), testing::ElementsAre("queued"));
}

TEST_F(JobsTest, SigtermDoesNotWaitForAJob) {
  daemon_.Start();
  std::string id;
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  const auto start = std::chrono::steady_clock::now();
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(5));
  EXPECT_FALSE(Exists(process));
  daemon_.Start();
  EXPECT_EQ(GetJob(id).reason(), "traincheckd stopped while it ran");
}

TEST_F(JobsTest, InferNamesItsJobAndEndsWithIt) {
  daemon_.Start();
  std::string id;
  const pid_t process = StartHangingJob(&id);
  ASSERT_NE(process, 0);
  v1::InferRequest request;
  request.add_runs("large");
  request.set_set("set");
  grpc::ClientContext context;
  const auto control = daemon_.Control();
  const auto infer = control->Infer(&context, request);
  v1::InferProgress progress;
  ASSERT_TRUE(infer->Read(&progress));
  EXPECT_EQ(progress.job(), "j2");
  EXPECT_EQ(progress.stage(), "waiting");
  Cancel("j2");
  EXPECT_FALSE(infer->Read(&progress));
  const grpc::Status status = infer->Finish();
  EXPECT_EQ(status.error_code(), grpc::StatusCode::CANCELLED);
  EXPECT_EQ(status.error_message(), "job j2 was cancelled");
}

TEST_F(JobsTest, WhatIsOverALimitIsNamed) {
  daemon_.Start();
  StreamRun("small", 1);
  v1::InferRequest request;
  request.set_set("set");
  for (int i = 0; i <= kMaxRunsInJob; ++i) request.add_runs("small");
  v1::Job job;
  grpc::ClientContext context;
  const grpc::Status status =
      daemon_.Control()->StartInference(&context, request, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(status.error_message(),
            "--from has 1001 entries, the limit is 1000");
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
  daemon_.Spawn({"--data-dir", folder_ + "/data", "--job-memory", "1MiB"});
  EXPECT_EQ(daemon_.Wait(), 2);
}

}  // namespace
}  // namespace traincheck::server
