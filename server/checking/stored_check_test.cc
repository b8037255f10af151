#include "server/checking/stored_check.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>

#include "server/checking/live_checks.h"
#include "server/ingest/test_batches.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

// A store with the run "run" of one process and the empty set "rules".
class StoredCheckTest : public testing::Test {
 protected:
  StoredCheckTest() {
    const std::string dir =
        testing::TempDir() + "/stored-" +
        testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::remove_all(dir);
    store_ = *OpenRocksdbStore(dir);
    registry_ = *Registry::Load(store_.get(), {});
    sets_ = std::make_unique<SetCatalog>(store_.get());
    policy_ = *RulePolicy::Load(store_.get(), sets_.get());
    checks_ = std::make_unique<StoredChecks>(
        StoredChecks::Dependencies{.store = store_.get(),
                                   .registry = registry_.get(),
                                   .sets = sets_.get(),
                                   .policy = policy_.get(),
                                   .pins = &pins_});
    InvariantSet set;
    set.name = "rules";
    EXPECT_TRUE(sets_->Save(set).ok());
    stream_ = registry_->Open(MakeHello("run", 1), nullptr)->stream;
    BatchFacts facts;
    facts.place = PlaceRecord{
        .header = {}, .rank = 0, .world_size = 1, .local_rank = 0, .source = 0};
    EXPECT_TRUE(
        registry_->AddBatch(stream_, StepBatch(0), facts, nullptr).ok());
  }
  ~StoredCheckTest() override { store_->Close(); }

  void EndRun() {
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    ASSERT_TRUE(registry_->End(stream_, goodbye, nullptr).ok());
    registry_->Tick();
  }
  absl::StatusOr<v1::CheckResult> Check(const std::string& run,
                                        const std::string& set,
                                        bool go_on = true) const {
    v1::CheckRunRequest request;
    request.set_run(run);
    request.set_set(set);
    return checks_->Check(request, [&](double fraction) {
      EXPECT_GE(fraction, 0);
      EXPECT_LE(fraction, 1);
      return go_on;
    });
  }

  RunPins pins_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<Store> store_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<RulePolicy> policy_;
  std::unique_ptr<StoredChecks> checks_;
  StreamId stream_;
};

TEST_F(StoredCheckTest, WhatIsNotThereIsNamed) {
  EXPECT_TRUE(absl::IsNotFound(Check("other", "rules").status()));
  EXPECT_THAT(std::string(Check("other", "rules").status().message()),
              HasSubstr("\"other\""));
  EndRun();
  EXPECT_TRUE(absl::IsNotFound(Check("run", "other").status()));
}

TEST_F(StoredCheckTest, ARunThatGoesOnHasToEndFirst) {
  const absl::Status status = Check("run", "rules").status();
  EXPECT_TRUE(absl::IsFailedPrecondition(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("has not ended"));
}

TEST_F(StoredCheckTest, ReadsTheWholeRunAndStoresNothing) {
  EndRun();
  const auto result = Check("run", "rules");
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->run(), "run");
  EXPECT_EQ(result->version(), 1u);
  EXPECT_TRUE(result->coverage().finished());
  EXPECT_EQ(result->verdicts_size(), 0);
  EXPECT_FALSE(pins_.IsPinned("run"));
}

TEST_F(StoredCheckTest, GivesUpWhenNobodyWaits) {
  EndRun();
  EXPECT_TRUE(
      absl::IsCancelled(Check("run", "rules", /*go_on=*/false).status()));
  EXPECT_FALSE(pins_.IsPinned("run"));
}

}  // namespace
}  // namespace traincheck::server
