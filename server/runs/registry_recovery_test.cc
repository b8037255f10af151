// Takeover, late ends, deletion and retention in the registry's books.
#include <gmock/gmock.h>

#include "server/runs/registry_for_testing.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

TEST_F(RegistryTest, WithoutCountersWhatIsLostIsUnknownUntilTheyCome) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_DIED);
  ASSERT_TRUE(registry_->End(a, goodbye, nullptr).ok());
  EXPECT_FALSE(Process(0).has_lost());
  EXPECT_THAT(Process(0).reason(), HasSubstr("its relay died with it"));
  Restart();
  EXPECT_FALSE(Process(0).has_lost());
  // A spool that another relay delivers brings them.
  const StreamId again = Open(1);
  AddStep(again, 3);
  v1::RingReport* ring = goodbye.add_rings();
  ring->set_ring(1);
  ring->set_committed_records(5);
  ASSERT_TRUE(registry_->End(again, goodbye, nullptr).ok());
  EXPECT_EQ(Process(0).lost(), 3u);
  EXPECT_EQ(Process(0).reason(), "died at step 4: ended without a clean exit");
}

TEST_F(RegistryTest, ALateGoodbyeCorrectsALostProcess) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  registry_->Disconnect(a);
  Pass(absl::Seconds(601));
  ASSERT_EQ(Run().status(), v1::RUN_STATUS_LOST);
  Restart();
  ASSERT_EQ(registry_->View("run")->processes[0].end, ProcessEnd::kLost);
  const StreamId late = Open(1);
  AddStep(late, 0);
  End(late, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_EQ(Process(0).reason(), "clean exit");
  EXPECT_EQ(Process(0).records(), 2u);
}

TEST_F(RegistryTest, AProcessThatResumesInANewStoreCountsWhatWasBefore) {
  const StreamId a = Open(1);
  v1::Batch batch;
  batch.set_number(7);
  v1::Slice* slice = batch.add_slices();
  slice->set_ring(1);
  slice->set_from(800);
  slice->set_to(808);
  slice->set_records(1);
  ASSERT_TRUE(registry_->AddBatch(a, batch, BatchFacts(), nullptr).ok());
  EXPECT_FALSE(Process(0).has_lost());
  v1::Hello hello = MakeHello(1);
  hello.set_resumes(true);
  const auto opened = registry_->Open(hello, nullptr);
  ASSERT_TRUE(opened.ok());
  EXPECT_EQ(opened->next_batch, 8u);
  ASSERT_EQ(opened->rings.size(), 1u);
  EXPECT_EQ(opened->rings[0].position(), 808u);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  v1::RingReport* ring = goodbye.add_rings();
  ring->set_ring(1);
  ring->set_committed_records(101);
  ASSERT_TRUE(registry_->End(opened->stream, goodbye, nullptr).ok());
  EXPECT_EQ(Process(0).lost(), 100u);
}

TEST_F(RegistryTest, ANewerStreamReplacesAnOlderOne) {
  const StreamId a = Open(1);
  v1::Hello hello = MakeHello(1);
  hello.set_resumes(true);
  const auto b = registry_->Open(hello, nullptr);
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(registry_->CheckStream(a).code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(registry_->CheckStream(b->stream).ok());
  registry_->Disconnect(a);
  EXPECT_EQ(Process(0).reason(), "streaming");
  // Another boot is another process.
  hello.mutable_process()->set_boot_id("next");
  ASSERT_TRUE(registry_->Open(hello, nullptr).ok());
  EXPECT_EQ(Run().processes_size(), 2);
}

TEST_F(RegistryTest, ProcessesOfARunAreBounded) {
  Close();
  store_ = *OpenRocksdbStore(dir_);
  registry_ = *Registry::Load(
      store_.get(), {.now = [this] { return now_; }, .max_processes = 2});
  Open(1);
  Open(2);
  const absl::Status refused = registry_->Open(MakeHello(3), nullptr).status();
  EXPECT_EQ(refused.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("the limit is 2"));
}

TEST_F(RegistryTest, ADeletedRunIsGoneAndItsIdIsFree) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  RunPins pins;
  EXPECT_THAT(std::string(registry_->Withdraw("run", pins).status().message()),
              HasSubstr("has not ended"));
  EXPECT_EQ(registry_->Withdraw("none", pins).status().code(),
            absl::StatusCode::kNotFound);
  End(a, v1::END_KIND_CLEAN);
  ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  {
    const RunPins::Pin pin = pins.Hold("run");
    EXPECT_THAT(
        std::string(registry_->Withdraw("run", pins).status().message()),
        HasSubstr("read by a job"));
  }
  const auto withdrawn = registry_->Withdraw("run", pins);
  ASSERT_TRUE(withdrawn.ok()) << withdrawn.status();
  EXPECT_EQ(withdrawn->records, 1u);
  EXPECT_FALSE(registry_->Run("run").ok());
  EXPECT_EQ(registry_->Open(MakeHello(1), nullptr).status().code(),
            absl::StatusCode::kUnavailable);
  // Not deleted after all: it comes back.
  registry_->Release("run", /*deleted=*/false);
  ASSERT_TRUE(registry_->Run("run").ok());
  ASSERT_TRUE(registry_->Withdraw("run", pins).ok());
  registry_->Release("run", /*deleted=*/true);
  EXPECT_EQ(registry_->CheckStream(a).code(), absl::StatusCode::kAborted);
  Open(1);
  EXPECT_EQ(Run().records(), 0u);
  EXPECT_GT(registry_->View("run")->number, withdrawn->number);
}

TEST_F(RegistryTest, RetentionTakesTheRecordsAndLeavesTheBooks) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  End(a, v1::END_KIND_CLEAN);
  ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  const RunPins pins;
  ASSERT_TRUE(registry_->Keep("run", true).ok());
  EXPECT_THAT(
      std::string(registry_->DropRecords("run", pins).status().message()),
      HasSubstr("is kept"));
  ASSERT_TRUE(registry_->Keep("run", false).ok());
  ASSERT_TRUE(registry_->DropRecords("run", pins).ok());
  Restart();
  EXPECT_EQ(Run().records(), 1u);
  EXPECT_EQ(Run().stored_bytes(), 0u);
  EXPECT_NE(Run().records_deleted_unix_ns(), 0u);
  EXPECT_TRUE(registry_->View("run")->records_deleted);
  EXPECT_TRUE(registry_->View("run")->processes[0].refused);
  int batches = 0;
  ASSERT_TRUE(store_
                  ->Scan(Table::kBatches, "", "\xff",
                         [&](std::string_view, std::string_view) {
                           ++batches;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(batches, 0);
}

}  // namespace
}  // namespace traincheck::server
