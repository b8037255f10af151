#include "server/checking/live_checks.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>

#include "invariants/sets/invariant_for_testing.h"
#include "server/ingest/test_batches.h"
#include "server/store/forwarding_store_for_testing.h"
#include "server/store/rocksdb_store.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class CountingStore : public ForwardingStore {
 public:
  using ForwardingStore::ForwardingStore;
  uint64_t batches_read() const { return batches_read_; }
  // As while it is opened again after a write error.
  void RefuseReads(int reads) { refuse_ = reads; }
  int still_to_refuse() const { return refuse_; }

  absl::StatusOr<std::optional<std::string>> Get(
      Table table, const std::string& key) const override {
    if (Refuses()) return absl::UnavailableError("the store is closed");
    return ForwardingStore::Get(table, key);
  }

  absl::Status Scan(Table table, const std::string& from, const std::string& to,
                    const Visitor& visitor) const override {
    if (Refuses()) return absl::UnavailableError("the store is closed");
    if (table != Table::kBatches) {
      return ForwardingStore::Scan(table, from, to, visitor);
    }
    return ForwardingStore::Scan(
        table, from, to, [&](std::string_view key, std::string_view value) {
          ++batches_read_;
          return visitor(key, value);
        });
  }

 private:
  bool Refuses() const {
    if (refuse_ == 0) return false;
    --refuse_;
    return true;
  }

  mutable std::atomic<uint64_t> batches_read_ = 0;
  mutable std::atomic<int> refuse_ = 0;
};

// Store, registry, catalog, board and checks as the daemon has them.
class LiveChecksTest : public testing::Test {
 protected:
  LiveChecksTest()
      : dir_(testing::TempDir() + "/checks-" +
             testing::UnitTest::GetInstance()->current_test_info()->name()) {
    std::filesystem::remove_all(dir_);
    Load();
  }
  ~LiveChecksTest() override { Close(); }

  // The checks find that so many reads fail.
  void Load(int reads_refused = 0) {
    store_ = std::make_unique<CountingStore>(*OpenRocksdbStore(dir_));
    registry_ = *Registry::Load(store_.get(), {});
    board_ = *ViolationBoard::Load(store_.get());
    sets_ = std::make_unique<SetCatalog>(store_.get());
    checks_ = std::make_unique<LiveChecks>(
        LiveChecks::Dependencies{.store = store_.get(),
                                 .registry = registry_.get(),
                                 .sets = sets_.get(),
                                 .board = board_.get()});
    registry_->SetObserver(
        [this](const std::string& run) { checks_->Wake(run); });
    sets_->SetObserver([this](const std::string& set) { checks_->OnSet(set); });
    store_->RefuseReads(reads_refused);
    checks_->Start();
  }
  void Close() {
    checks_->Stop();
    store_->Close();
    checks_.reset();
    sets_.reset();
    board_.reset();
    store_.reset();
    registry_.reset();
  }
  void Restart() {
    Close();
    Load();
  }

  void SaveSet(const std::string& name = "rules") {
    InvariantSet set;
    set.name = name;
    ASSERT_TRUE(sets_->Save(set).ok());
  }
  // The next version of "rules", with one rule.
  void SaveRule() {
    InvariantSet set;
    set.name = "rules";
    const nlohmann::json call = {{"kind", "call"},
                                 {"function", {{"name", "a.forward"}}}};
    nlohmann::json event = call;
    event["binding"] = "any";
    set.invariants = {
        NewInvariant("EventContain", {{"window", call}, {"event", event}})};
    ASSERT_TRUE(sets_->Save(set).ok());
  }
  StreamId Open(uint32_t pid, const std::string& check_set = "rules") {
    v1::Hello hello = MakeHello("run", pid);
    hello.set_check_set(check_set);
    return registry_->Open(hello, nullptr)->stream;
  }
  void Add(const StreamId& stream, uint64_t batch) {
    BatchFacts facts;
    facts.place = PlaceRecord{
        .header = {}, .rank = 0, .world_size = 1, .local_rank = 0, .source = 0};
    ASSERT_TRUE(
        registry_->AddBatch(stream, StepBatch(batch), facts, nullptr).ok());
  }
  void End(const StreamId& stream) {
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  }
  // Waits until `reached` holds of the progress.
  v1::CheckProgress Await(bool (*reached)(const v1::CheckProgress&)) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (absl::Now() < deadline) {
      const auto progress = checks_->Progress("run");
      if (progress.has_value() && reached(*progress)) return *progress;
      absl::SleepFor(absl::Milliseconds(1));
    }
    ADD_FAILURE() << "gave up waiting for the check";
    return v1::CheckProgress();
  }
  void AwaitChecksInMemory(size_t count) {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    while (checks_->ChecksInMemory() != count && absl::Now() < deadline) {
      absl::SleepFor(absl::Milliseconds(1));
    }
    ASSERT_EQ(checks_->ChecksInMemory(), count);
  }
  // Once the check has let go of the run.
  void DropRecords() {
    const absl::Time deadline = absl::Now() + absl::Minutes(1);
    absl::Status dropped;
    do {
      absl::SleepFor(absl::Milliseconds(1));
      dropped = registry_->DropRecords("run", RunPins()).status();
    } while (!dropped.ok() && absl::Now() < deadline);
    ASSERT_TRUE(dropped.ok()) << dropped;
  }
  static bool Finished(const v1::CheckProgress& progress) {
    return progress.finished();
  }
  static bool CaughtUp(const v1::CheckProgress& progress) {
    return progress.caught_up() && !progress.finished();
  }

  const std::string dir_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<CountingStore> store_;
  std::unique_ptr<ViolationBoard> board_;
  std::unique_ptr<SetCatalog> sets_;
  std::unique_ptr<LiveChecks> checks_;
};

TEST_F(LiveChecksTest, FollowsARunToItsEnd) {
  SaveSet();
  const StreamId stream = Open(1);
  for (uint64_t i = 0; i < 30; ++i) Add(stream, i);
  Await(CaughtUp);
  End(stream);
  EXPECT_EQ(Await(Finished).error(), "");
}

TEST_F(LiveChecksTest, AFinishedCheckIsNotRepeatedAfterARestart) {
  SaveSet();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  Restart();
  Await(Finished);
}

TEST_F(LiveChecksTest, AnUnfinishedOneGoesOnAfterARestart) {
  SaveSet();
  Add(Open(1), 0);
  Await(CaughtUp);
  Restart();
  const StreamId stream = Open(1);
  Add(stream, 1);
  End(stream);
  Await(Finished);
}

TEST_F(LiveChecksTest, WhatComesAfterTheEndIsCheckedToo) {
  SaveSet();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  const StreamId late = Open(2);
  Add(late, 0);
  Await(CaughtUp);
  End(late);
  Await(Finished);
}

// A job that begins again under its run id after an hour of records.
TEST_F(LiveChecksTest, WhatWasReadBeforeTheEndIsNotReadAgain) {
  SaveRule();
  const StreamId stream = Open(1);
  for (uint64_t i = 0; i < 30; ++i) Add(stream, i);
  End(stream);
  Await(Finished);
  EXPECT_EQ(store_->batches_read(), 30u);
  const StreamId next = Open(2);
  Add(next, 0);
  Await(CaughtUp);
  Restart();
  Add(Open(2), 1);
  Await(CaughtUp);
  EXPECT_LE(store_->batches_read(), 2u);
}

TEST_F(LiveChecksTest, WhatAnEarlierCheckAloneFoundGoesWhenThisOneCatchesUp) {
  SaveSet();
  StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  Violation of_another_attempt;
  of_another_attempt.id = "v-0";
  of_another_attempt.run = "run";
  board_->Post(registry_->View("run")->number, {of_another_attempt});
  ASSERT_THAT(*board_->List("run"), testing::SizeIs(1));
  stream = Open(1);  // the run goes on
  Add(stream, 1);
  Await(CaughtUp);
  EXPECT_THAT(*board_->List("run"), testing::IsEmpty());
}

TEST_F(LiveChecksTest, AMissingSetIsNamed) {
  const StreamId stream = Open(1);
  Add(stream, 0);
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("no set \"rules\""));
  End(stream);
  EXPECT_THAT(Await(Finished).error(), HasSubstr("no set \"rules\""));
}

TEST_F(LiveChecksTest, ARunIsCheckedOnceItsSetIsThere) {
  const StreamId stream = Open(1);
  Add(stream, 0);
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("once it is there"));
  SaveSet("others");
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("no set \"rules\""));
  SaveSet();
  EXPECT_EQ(Await(CaughtUp).error(), "");
  Add(stream, 1);
  End(stream);
  EXPECT_EQ(Await(Finished).error(), "");
  Restart();
  EXPECT_EQ(Await(Finished).error(), "");
}

TEST_F(LiveChecksTest, ARunMayNameAVersionOfItsSet) {
  SaveRule();
  SaveSet();
  const StreamId stream = Open(1, "rules@1");
  Add(stream, 0);
  EXPECT_EQ(Await(CaughtUp).total(), 1u);
  SaveSet();
  End(stream);
  EXPECT_EQ(Await(Finished).total(), 1u);
  EXPECT_EQ(Await(Finished).error(), "");
}

TEST_F(LiveChecksTest, AndWaitsForThatVersion) {
  SaveSet();
  const StreamId stream = Open(1, "rules@3");
  Add(stream, 0);
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("no set \"rules\" version 3"));
  SaveSet();
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("no set \"rules\" version 3"));
  SaveRule();
  End(stream);
  EXPECT_EQ(Await([](const v1::CheckProgress& progress) {
              return progress.finished() && progress.error().empty();
            }).total(),
            1u);
}

TEST_F(LiveChecksTest, AVersionThatIsNoneIsNamed) {
  SaveSet();
  Add(Open(1, "rules@newest"), 0);
  EXPECT_THAT(Await(CaughtUp).error(), HasSubstr("NAME@VERSION"));
}

TEST_F(LiveChecksTest, ARunThatHasEndedToo) {
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  EXPECT_THAT(Await(Finished).error(), HasSubstr("no set \"rules\""));
  SaveSet();
  EXPECT_EQ(Await(Finished).error(), "");
}

TEST_F(LiveChecksTest, AFinishedCheckLeavesMemoryAndIsToldFromTheStore) {
  SaveRule();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  const v1::CheckProgress finished = Await(Finished);
  AwaitChecksInMemory(0);
  EXPECT_EQ(checks_->Progress("run")->DebugString(), finished.DebugString());
  Restart();
  AwaitChecksInMemory(0);
  EXPECT_EQ(Await(Finished).DebugString(), finished.DebugString());
}

TEST_F(LiveChecksTest, AndIsTakenUpAgainForABatchThatComesLate) {
  SaveSet();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  AwaitChecksInMemory(0);
  Add(Open(1), 1);
  Await(CaughtUp);
  EXPECT_EQ(checks_->ChecksInMemory(), 1u);
}

TEST_F(LiveChecksTest, NotOnceItsRecordsAreDeleted) {
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  DropRecords();
  SaveSet();
  EXPECT_THAT(Await(Finished).error(), HasSubstr("retention deleted"));
  Restart();
  EXPECT_THAT(Await(Finished).error(), HasSubstr("retention deleted"));
}

TEST_F(LiveChecksTest, AStoreThatIsAwayForAMomentEndsNoCheck) {
  SaveRule();
  const StreamId stream = Open(1);
  Add(stream, 0);
  Await(CaughtUp);
  store_->RefuseReads(2);
  Add(stream, 1);
  End(stream);
  const v1::CheckProgress progress = Await(Finished);
  EXPECT_EQ(progress.error(), "");
  EXPECT_EQ(progress.total(), 1u);
  EXPECT_EQ(store_->still_to_refuse(), 0);
}

TEST_F(LiveChecksTest, NorDoesItTakeTheVersionThatTheCheckBeganWith) {
  SaveRule();
  Add(Open(1), 0);
  EXPECT_EQ(Await(CaughtUp).total(), 1u);
  SaveSet();  // a version without rules
  // The check itself, then its set.
  for (const int reads : {1, 2}) {
    Close();
    Load(reads);
    EXPECT_EQ(Await(CaughtUp).total(), 1u);
    EXPECT_EQ(store_->still_to_refuse(), 0);
  }
}

TEST_F(LiveChecksTest, AVerdictOutlivesTheRecordsThatItIsOf) {
  SaveRule();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  const v1::CheckProgress finished = Await(Finished);
  AwaitChecksInMemory(0);
  DropRecords();
  Restart();
  EXPECT_EQ(Await(Finished).DebugString(), finished.DebugString());
  AwaitChecksInMemory(0);
}

TEST_F(LiveChecksTest, AJobThatBeginsAgainKeepsWhatWasFoundInDeletedRecords) {
  SaveSet();
  const StreamId stream = Open(1);
  Add(stream, 0);
  End(stream);
  Await(Finished);
  Violation found;
  found.id = "v-0";
  found.run = "run";
  board_->Post(registry_->View("run")->number, {found});
  AwaitChecksInMemory(0);
  DropRecords();
  const StreamId next = Open(2);
  Add(next, 0);
  Await(CaughtUp);
  EXPECT_THAT(*board_->List("run"), testing::SizeIs(1));
  End(next);
  Await(Finished);
  EXPECT_THAT(*board_->List("run"), testing::SizeIs(1));
}

TEST_F(LiveChecksTest, ABatchThatTheStoreLostIsAnErrorAndNoCrash) {
  SaveSet();
  const StreamId stream = Open(1);
  Add(stream, 0);
  Await(CaughtUp);
  WriteSet spoilt;
  spoilt.Put(Table::kBatches, BatchKey({registry_->View("run")->number, 0, 1}),
             "no batch");
  ASSERT_TRUE(store_->WriteAndWait(std::move(spoilt), absl::Minutes(1)).ok());
  v1::Batch batch = StepBatch(2);
  ASSERT_TRUE(registry_->AddBatch(stream, batch, BatchFacts(), nullptr).ok());
  EXPECT_THAT(Await([](const v1::CheckProgress& progress) {
                return !progress.error().empty();
              }).error(),
              HasSubstr("stored batch 1 of process 0"));
}

}  // namespace
}  // namespace traincheck::server
