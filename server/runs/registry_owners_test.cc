#include <gmock/gmock.h>

#include "server/runs/registry.h"
#include "server/runs/registry_for_testing.h"
#include "server/runs/run_pins.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

constexpr uint64_t kLimit = 4 << 20;

// Runs of several owners in a store that gives each so much.
class RegistryOwnersTest : public RegistryTest {
 protected:
  RegistryOwnersTest() { RestartWithLimit(); }

  void RestartWithLimit() {
    Close();
    store_ = *OpenRocksdbStore(dir_);
    registry_ = *Registry::Load(
        store_.get(), {.now = [this] { return now_; }, .owner_bytes = kLimit});
  }
  absl::StatusOr<Registry::Opened> OpenRun(const std::string& run,
                                           const std::string& owner) {
    v1::Hello hello = MakeHello(1);
    hello.set_run(run);
    hello.set_check_set("");
    return registry_->Open(hello, nullptr, owner);
  }
  // Batches of a MiB, until one is not taken.
  absl::Status Fill(const StreamId& stream, int batches) {
    for (int i = 0; i < batches; ++i) {
      const uint64_t number = numbers_[stream.run];
      v1::Batch batch;
      batch.set_number(number);
      *batch.add_slices() = MakeSlice(1, 8 * number);
      batch.set_payload(std::string(1 << 20, 'x'));
      const auto fate = registry_->AddBatch(stream, batch, facts_, nullptr);
      if (!fate.ok()) return fate.status();
      ++numbers_[stream.run];
    }
    return absl::OkStatus();
  }
  void EndRun(const StreamId& stream) {
    End(stream, v1::END_KIND_CLEAN);
    Pass(absl::Seconds(2));
    ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  }

  absl::StatusOr<BatchFacts> facts_ = BatchFacts();
  std::map<std::string, uint64_t> numbers_;
};

TEST_F(RegistryOwnersTest, OverItsLimitNothingMoreOfAnOwnerIsTaken) {
  const StreamId alice = OpenRun("a", "alice")->stream;
  const absl::Status full = Fill(alice, 8);
  EXPECT_TRUE(absl::IsPermissionDenied(full)) << full;
  EXPECT_THAT(std::string(full.message()),
              HasSubstr("the runs of owner alice take 4 MiB"));
  EXPECT_EQ(numbers_["a"], 4u);
  EXPECT_TRUE(absl::IsPermissionDenied(OpenRun("b", "alice").status()));
  // Others have theirs, and administrators what all have.
  EXPECT_TRUE(Fill(OpenRun("c", "bob")->stream, 3).ok());
  EXPECT_TRUE(Fill(OpenRun("d", "")->stream, 8).ok());
}

// What cannot be read costs as much as what can.
TEST_F(RegistryOwnersTest, QuarantinedBatchesCount) {
  facts_ = absl::DataLossError("broken");
  EXPECT_TRUE(absl::IsPermissionDenied(Fill(OpenRun("a", "alice")->stream, 8)));
  EXPECT_EQ(registry_->quarantined_batches(), 4u);
  RestartWithLimit();
  EXPECT_TRUE(absl::IsPermissionDenied(OpenRun("b", "alice").status()));
}

TEST_F(RegistryOwnersTest, ARunThatIsDeletedMakesRoom) {
  const StreamId first = OpenRun("a", "alice")->stream;
  ASSERT_TRUE(Fill(first, 3).ok());
  EndRun(first);
  const StreamId second = OpenRun("b", "alice")->stream;
  EXPECT_FALSE(Fill(second, 3).ok());
  ASSERT_TRUE(registry_->DropRecords("a", RunPins()).ok());
  EXPECT_TRUE(Fill(second, 2).ok());
  EXPECT_FALSE(Fill(second, 3).ok());
  ASSERT_TRUE(registry_->Withdraw("a", RunPins()).ok());
  registry_->Release("a", /*deleted=*/true);
  EXPECT_FALSE(Fill(second, 1).ok()) << "its records were counted twice";
}

TEST_F(RegistryOwnersTest, ARunThatComesBackFromItsDeletionCounts) {
  const StreamId first = OpenRun("a", "alice")->stream;
  EXPECT_FALSE(Fill(first, 8).ok());
  EndRun(first);
  ASSERT_TRUE(registry_->Withdraw("a", RunPins()).ok());
  EXPECT_TRUE(OpenRun("b", "alice").ok());
  registry_->Release("a", /*deleted=*/false);
  EXPECT_FALSE(OpenRun("c", "alice").ok());
}

TEST_F(RegistryOwnersTest, AfterARestartItIsKnownWhatEachHas) {
  const StreamId first = OpenRun("a", "alice")->stream;
  ASSERT_TRUE(Fill(first, 3).ok());
  EndRun(first);
  ASSERT_TRUE(Fill(OpenRun("b", "alice")->stream, 1).ok());
  RestartWithLimit();
  EXPECT_FALSE(OpenRun("c", "alice").ok());
  EXPECT_TRUE(OpenRun("d", "bob").ok());
}

}  // namespace
}  // namespace traincheck::server
