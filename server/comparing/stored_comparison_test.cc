#include "server/comparing/stored_comparison.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <memory>
#include <string>

#include "server/ingest/test_batches.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

// A store with runs of processes that close some steps each.
class StoredComparisonTest : public testing::Test {
 protected:
  StoredComparisonTest() {
    const std::string dir =
        testing::TempDir() + "/comparison-" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir);
    store_ = *OpenRocksdbStore(dir);
    registry_ = *Registry::Load(store_.get(), {});
    comparisons_ = std::make_unique<StoredComparisons>(
        StoredComparisons::Dependencies{.store = store_.get(),
                                        .registry = registry_.get(),
                                        .pins = &pins_});
  }
  ~StoredComparisonTest() override { store_->Close(); }

  StreamId Begin(const std::string& run, uint32_t pid, uint32_t attempt = 0) {
    v1::Hello hello = MakeHello(run, pid);
    hello.set_attempt(attempt);
    hello.mutable_process()->set_kind(v1::PROCESS_KIND_MAIN);
    return registry_->Open(hello, nullptr)->stream;
  }
  void Add(const StreamId& stream, uint64_t batch, int32_t rank,
           int32_t world) {
    BatchFacts facts;
    facts.place = PlaceRecord{.header = {},
                              .rank = rank,
                              .world_size = world,
                              .local_rank = 0,
                              .source = 0};
    EXPECT_TRUE(
        registry_->AddBatch(stream, StepBatch(batch), facts, nullptr).ok());
  }
  void End(const StreamId& stream) {
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    EXPECT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
    registry_->Tick();
  }
  // A run of one process that trains.
  void AddRun(const std::string& run, uint32_t pid) {
    const StreamId stream = Begin(run, pid);
    Add(stream, 0, 0, 1);
    End(stream);
  }

  absl::StatusOr<v1::CompareRunsResult> Compare(const std::string& a,
                                                const std::string& b,
                                                bool go_on = true) const {
    v1::CompareRunsRequest request;
    request.set_run_a(a);
    request.set_run_b(b);
    return comparisons_->Compare(request, [&](double fraction) {
      EXPECT_GE(fraction, 0);
      EXPECT_LE(fraction, 1);
      return go_on;
    });
  }

  RunPins pins_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<StoredComparisons> comparisons_;
};

TEST_F(StoredComparisonTest, WhatIsNotThereIsNamed) {
  AddRun("a", 1);
  const absl::Status run = Compare("a", "other").status();
  EXPECT_TRUE(absl::IsNotFound(run));
  EXPECT_THAT(std::string(run.message()), HasSubstr("\"other\""));
  v1::CompareRunsRequest request;
  request.set_run_a("a");
  request.set_run_b("a");
  request.set_attempt_b(3);
  const absl::Status attempt =
      comparisons_->Compare(request, [](double) { return true; }).status();
  EXPECT_TRUE(absl::IsNotFound(attempt));
  EXPECT_THAT(std::string(attempt.message()), HasSubstr("attempt 3 of run a"));
}

TEST_F(StoredComparisonTest, ARunThatGoesOnHasToEndFirst) {
  AddRun("a", 1);
  Begin("b", 2);
  const absl::Status status = Compare("a", "b").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not ended"));
}

TEST_F(StoredComparisonTest, ReadsBothRunsAndStoresNothing) {
  AddRun("a", 1);
  AddRun("b", 2);
  const auto result = Compare("a", "b");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run_a(), "a");
  EXPECT_EQ(result->run_b(), "b");
  ASSERT_EQ(result->ranks_size(), 1);
  EXPECT_EQ(result->first_size(), 0);
  EXPECT_FALSE(pins_.IsPinned("a"));
  EXPECT_FALSE(pins_.IsPinned("b"));
}

TEST_F(StoredComparisonTest, ARankThatOneRunLacksIsNotCompared) {
  AddRun("a", 1);
  const StreamId first = Begin("b", 2);
  const StreamId second = Begin("b", 3);
  Add(first, 0, 0, 2);
  Add(second, 0, 1, 2);
  End(first);
  End(second);
  const auto result = Compare("a", "b");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->ranks_size(), 1);
  ASSERT_EQ(result->before_size(), 1);
  EXPECT_EQ(result->before(0).what(), "the number of ranks");
  ASSERT_EQ(result->not_compared_size(), 1);
  EXPECT_EQ(result->not_compared(0).what(), "ranks");
  EXPECT_EQ(result->not_compared(0).examples(0), "rank 1");
}

TEST_F(StoredComparisonTest, GivesUpWhenNobodyWaits) {
  AddRun("a", 1);
  AddRun("b", 2);
  EXPECT_TRUE(absl::IsCancelled(Compare("a", "b", /*go_on=*/false).status()));
  EXPECT_FALSE(pins_.IsPinned("a"));
}

}  // namespace
}  // namespace traincheck::server
