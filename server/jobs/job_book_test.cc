#include "server/jobs/job_book.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "server/jobs/limits.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class JobBookTest : public testing::Test {
 protected:
  JobBookTest()
      : dir_(testing::TempDir() + "/book-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Restart();
  }
  ~JobBookTest() override { store_->Close(); }

  // As after a crash of the daemon.
  void Restart() {
    book_.reset();
    if (store_ != nullptr) store_->Close();
    store_.reset();
    store_ = *OpenRocksdbStore(dir_, {.min_free_bytes = 0});
    book_ = *JobBook::Load(store_.get(), [this] { return now_; });
  }

  std::string Add(const std::string& set) {
    v1::InferRequest request;
    request.set_set(set);
    request.add_runs("run");
    const absl::StatusOr<v1::Job> job = book_->Add(request);
    EXPECT_TRUE(job.ok()) << job.status();
    return job->id();
  }
  v1::Job Find(const std::string& id) {
    const absl::StatusOr<v1::Job> job = book_->Find(id);
    EXPECT_TRUE(job.ok()) << job.status();
    return job.value_or(v1::Job());
  }
  v1::Job Finish(const std::string& id) {
    v1::InferResult result;
    result.set_invariants(7);
    WriteSet writes;
    const v1::Job finished = book_->Finished(id, result, &writes);
    EXPECT_TRUE(
        store_->WriteAndWait(std::move(writes), absl::Seconds(60)).ok());
    return finished;
  }

  const std::string dir_;
  absl::Time now_ = absl::FromUnixSeconds(1000);
  std::unique_ptr<Store> store_;
  std::unique_ptr<JobBook> book_;
};

TEST_F(JobBookTest, JobsRunInTheOrderInWhichTheyCame) {
  EXPECT_EQ(Add("a"), "j1");
  EXPECT_EQ(Add("b"), "j2");
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_QUEUED);
  EXPECT_EQ(book_->TakeNext()->id(), "j1");
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_RUNNING);
  EXPECT_EQ(book_->TakeNext()->id(), "j2");
  EXPECT_FALSE(book_->TakeNext().has_value());
  EXPECT_EQ(book_->List().size(), 2u);
}

TEST_F(JobBookTest, AfterARestartWhatRanHasFailedAndWhatWaitedWaits) {
  Add("done");
  Add("running");
  Add("cancelled");
  Add("queued");
  book_->TakeNext();
  book_->Done(Finish("j1"));
  book_->TakeNext();
  book_->End("j3", v1::JOB_STATUS_CANCELLED, "cancelled");
  now_ = absl::FromUnixSeconds(2000);
  Restart();
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_DONE);
  EXPECT_EQ(Find("j1").result().invariants(), 7u);
  EXPECT_EQ(Find("j2").status(), v1::JOB_STATUS_FAILED);
  EXPECT_EQ(Find("j2").reason(), "traincheckd stopped while it ran");
  EXPECT_EQ(Find("j2").ended_unix_ns(), 2000u * uint64_t{1'000'000'000});
  EXPECT_EQ(Find("j3").status(), v1::JOB_STATUS_CANCELLED);
  EXPECT_EQ(book_->TakeNext()->request().set(), "queued");
  EXPECT_EQ(Add("new"), "j5");  // an id is not used twice
}

// Between the write and Done the daemon may die: the job is done all the same.
TEST_F(JobBookTest, AJobIsDoneWithTheWriteOfItsSet) {
  Add("a");
  book_->TakeNext();
  Finish("j1");
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_RUNNING);
  Restart();
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_DONE);
}

TEST_F(JobBookTest, AJobEndsOnce) {
  Add("a");
  book_->TakeNext();
  book_->End("j1", v1::JOB_STATUS_FAILED, "first");
  book_->End("j1", v1::JOB_STATUS_CANCELLED, "second");
  book_->Report("j1", "stage", 0.5);
  EXPECT_EQ(Find("j1").reason(), "first");
  EXPECT_EQ(Find("j1").status(), v1::JOB_STATUS_FAILED);
  EXPECT_EQ(Find("j1").fraction(), 0);
}

TEST_F(JobBookTest, WaitReturnsWithEachChange) {
  Add("a");
  book_->TakeNext();
  const auto first = book_->Wait("j1", 0, absl::ZeroDuration());
  ASSERT_TRUE(first.ok());
  const auto same = book_->Wait("j1", first->revision, absl::Milliseconds(1));
  EXPECT_EQ(same->revision, first->revision);
  book_->Report("j1", "learning", 0.5);
  const auto next =
      book_->Wait("j1", first->revision, absl::InfiniteDuration());
  EXPECT_GT(next->revision, first->revision);
  EXPECT_EQ(next->job.stage(), "learning");
}

TEST_F(JobBookTest, WhatDoesNotExistIsNamed) {
  Add("a");
  for (const char* id : {"j2", "j01", "1", "j", "", "j1 ", "j-1"}) {
    const absl::Status status = book_->Find(id).status();
    EXPECT_EQ(status.code(), absl::StatusCode::kNotFound) << id;
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("there is no job \"" + std::string(id) +
                          "\": traincheckctl jobs list names all"));
  }
}

TEST_F(JobBookTest, TheQueueHasALimit) {
  for (size_t i = 0; i < kMaxQueuedJobs; ++i) Add("a");
  const absl::Status status = book_->Add(v1::InferRequest()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()), HasSubstr("the limit is 100"));
  book_->End("j50", v1::JOB_STATUS_CANCELLED, "cancelled");
  EXPECT_EQ(Add("a"), "j101");
}

TEST_F(JobBookTest, TheOldestEndedJobsAreForgotten) {
  Add("open");
  const int count = static_cast<int>(kMaxEndedJobs) + 20;
  for (int i = 0; i < count; ++i) {
    book_->End(Add("a"), v1::JOB_STATUS_CANCELLED, "cancelled");
  }
  const auto check = [&] {
    // The open one, the ended ones, and one that ended since the last came.
    EXPECT_EQ(book_->List().size(), kMaxEndedJobs + 2);
    EXPECT_EQ(Find("j1").request().set(), "open");
    EXPECT_FALSE(book_->Find("j2").ok());
    EXPECT_EQ(Find("j1021").status(), v1::JOB_STATUS_CANCELLED);
  };
  check();
  Restart();
  check();
}

}  // namespace
}  // namespace traincheck::server
