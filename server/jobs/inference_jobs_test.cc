// The queue with processes that are none of ours: they answer garbage, end or
// hang.
#include "server/jobs/inference_jobs.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "absl/synchronization/notification.h"
#include "invariants/sets/set_json.h"
#include "server/jobs/worker.pb.h"
#include "server/store/keys.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class InferenceJobsTest : public testing::Test {
 protected:
  InferenceJobsTest()
      : dir_(testing::TempDir() + "/jobs-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    store_ = *OpenRocksdbStore(dir_ + "/data");
    registry_ = *Registry::Load(store_.get(), {.end_grace = {}});
    sets_ = std::make_unique<SetCatalog>(store_.get());
    MakeRun();
  }
  ~InferenceJobsTest() override {
    if (jobs_ != nullptr) jobs_->Stop(absl::InfiniteDuration());
    store_->Close();
  }

  // "run", which has ended and holds a record.
  void MakeRun() {
    v1::Hello hello;
    hello.set_run("run");
    hello.set_experiment("e");
    const auto opened = registry_->Open(hello, nullptr);
    ASSERT_TRUE(opened.ok()) << opened.status();
    v1::Batch batch;
    v1::Slice& slice = *batch.add_slices();
    slice.set_ring(1);
    slice.set_to(8);
    slice.set_records(1);
    ASSERT_TRUE(
        registry_->AddBatch(opened->stream, batch, BatchFacts(), nullptr).ok());
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    absl::Notification durable;
    ASSERT_TRUE(
        registry_
            ->End(opened->stream, goodbye, [&](uint64_t) { durable.Notify(); })
            .ok());
    durable.WaitForNotification();
    while (!registry_->View("run")->ended) {
      registry_->Tick();
      absl::SleepFor(absl::Milliseconds(1));
    }
  }

  // Jobs whose process is this script.
  void Open(const std::string& script) {
    const std::string program = dir_ + "/worker";
    std::ofstream(program) << "#!/bin/sh\n" << script << "\n";
    chmod(program.c_str(), 0700);
    auto jobs = InferenceJobs::Open({.store = store_.get(),
                                     .registry = registry_.get(),
                                     .sets = sets_.get(),
                                     .pins = &pins_,
                                     .memory_bytes = 1 << 30,
                                     .worker_program = program});
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    jobs_ = *std::move(jobs);
  }
  v1::InferRequest Request() {
    v1::InferRequest request;
    request.add_runs("run");
    request.set_set("set");
    return request;
  }
  v1::Job AwaitEnd(const std::string& id) {
    uint64_t seen = 0;
    while (true) {
      const auto now = jobs_->book().Wait(id, seen, absl::InfiniteDuration());
      if (!now.ok() || HasEnded(now->job)) return now->job;
      seen = now->revision;
    }
  }
  v1::Job RunJob() {
    const absl::StatusOr<v1::Job> job = jobs_->Start(Request());
    EXPECT_TRUE(job.ok()) << job.status();
    return AwaitEnd(job->id());
  }

  const std::string dir_;
  RunPins pins_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<InferenceJobs> jobs_;
};

TEST_F(InferenceJobsTest, AnAnswerThatIsNoneFailsTheJob) {
  Open("printf '\\377\\377\\377\\377' >&3; sleep 1000");
  const v1::Job job = RunJob();
  EXPECT_EQ(job.status(), v1::JOB_STATUS_FAILED);
  EXPECT_THAT(job.reason(), HasSubstr("the limit is 67108864"));
  EXPECT_TRUE(sets_->List()->empty());
}

TEST_F(InferenceJobsTest, ASetThatIsNoneFailsTheJob) {
  // FromWorker{result{set_json: "{}"}}
  Open("printf '\\006\\000\\000\\000\\022\\004\\012\\002{}' >&3; sleep 1000");
  const v1::Job job = RunJob();
  EXPECT_EQ(job.status(), v1::JOB_STATUS_FAILED);
  EXPECT_NE(job.reason(), "");
  EXPECT_TRUE(sets_->List()->empty());
}

// Everything passes a set without rules.
TEST_F(InferenceJobsTest, NothingLearnedIsNoSet) {
  worker::FromWorker answer;
  answer.mutable_result()->set_set_json(ToJson(InvariantSet()).dump());
  (*answer.mutable_result()->mutable_dropped())["seen too seldom"] = 72;
  const std::string bytes = answer.SerializeAsString();
  const std::string size = {static_cast<char>(bytes.size() & 0xff),
                            static_cast<char>(bytes.size() >> 8), 0, 0};
  std::ofstream(dir_ + "/answer", std::ios::binary) << size << bytes;
  Open("cat " + dir_ + "/answer >&3; sleep 1000");
  const v1::Job job = RunJob();
  EXPECT_EQ(job.status(), v1::JOB_STATUS_FAILED);
  EXPECT_THAT(job.reason(), HasSubstr("no rule was learned, so no set is saved;"
                                      " 72 hypotheses dropped: seen too "
                                      "seldom. Learn from runs that trained"));
  EXPECT_FALSE(job.has_result());
  EXPECT_TRUE(sets_->List()->empty());
}

TEST_F(InferenceJobsTest, AnEndWithoutAnAnswerIsNamed) {
  Open("exit 3");
  EXPECT_EQ(RunJob().reason(), "its process ended with exit code 3");
  Open("exit 70");
  EXPECT_THAT(RunJob().reason(), HasSubstr("its limit of 1.0 GiB"));
  Open("kill -SEGV $$");
  EXPECT_THAT(RunJob().reason(), HasSubstr("killed by signal 11"));
  Open("printf '\\005\\000\\000\\000\\032\\003why' >&3; exit 1");
  EXPECT_EQ(RunJob().reason(), "why");
}

TEST_F(InferenceJobsTest, RunsArePinnedUntilTheirJobHasEnded) {
  Open("sleep 1000");
  EXPECT_FALSE(pins_.IsPinned("run"));
  const std::string first = jobs_->Start(Request())->id();
  const std::string second = jobs_->Start(Request())->id();
  EXPECT_TRUE(pins_.IsPinned("run"));
  EXPECT_TRUE(jobs_->Cancel(first).ok());
  AwaitEnd(first);
  EXPECT_TRUE(pins_.IsPinned("run"));
  EXPECT_TRUE(jobs_->Cancel(second).ok());
  EXPECT_EQ(AwaitEnd(second).status(), v1::JOB_STATUS_CANCELLED);
  while (pins_.IsPinned("run")) absl::SleepFor(absl::Milliseconds(1));
}

// A daemon that is killed now does not begin it after all.
TEST_F(InferenceJobsTest, AWaitingJobIsCancelledDurably) {
  Open("sleep 1000");
  EXPECT_TRUE(jobs_->Start(Request()).ok());
  for (uint32_t slot = 1; slot <= 20; ++slot) {
    EXPECT_TRUE(jobs_->Cancel(jobs_->Start(Request())->id()).ok());
    const auto stored = store_->Get(Table::kMeta, JobKey(slot));
    ASSERT_TRUE(stored.ok() && stored->has_value());
    v1::Job job;
    ASSERT_TRUE(job.ParseFromString(**stored));
    EXPECT_EQ(job.status(), v1::JOB_STATUS_CANCELLED) << slot;
  }
}

TEST_F(InferenceJobsTest, ARequestThatIsRefusedPinsNothing) {
  Open("exit 3");
  v1::InferRequest request = Request();
  request.set_set("no name");
  EXPECT_FALSE(jobs_->Start(request).ok());
  EXPECT_FALSE(pins_.IsPinned("run"));
  EXPECT_EQ(jobs_->Cancel("j1").status().code(), absl::StatusCode::kNotFound);
}

// Cancelled before, while and after there is a process: it ends once.
TEST_F(InferenceJobsTest, CancelledAtAnyTimeItEnds) {
  Open("sleep 0.01");
  for (int i = 0; i < 50; ++i) {
    const std::string id = jobs_->Start(Request())->id();
    absl::SleepFor(absl::Microseconds(300 * i));
    EXPECT_TRUE(jobs_->Cancel(id).ok());
    const v1::Job job = AwaitEnd(id);
    EXPECT_TRUE(job.status() == v1::JOB_STATUS_CANCELLED ||
                job.reason() == "its process ended with exit code 0")
        << job.reason();
  }
}

}  // namespace
}  // namespace traincheck::server
