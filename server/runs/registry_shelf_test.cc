// Runs whose processes are in the store alone, and what is asked of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "server/runs/registry_for_testing.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class RegistryShelfTest : public RegistryTest {
 protected:
  // A run of two ranks that has ended, on disk.
  void MakeEndedRun() {
    const StreamId ranks[] = {Open(1), Open(2)};
    for (const int32_t rank : {0, 1}) {
      AddPlace(ranks[rank], rank, 2);
      AddStep(ranks[rank], 7);
    }
    for (const StreamId& stream : ranks) End(stream, v1::END_KIND_CLEAN);
    Sync();
  }
  void Sync() {
    ASSERT_TRUE(store_->WriteAndWait(WriteSet(), absl::Minutes(1)).ok());
  }
  void Shelve() {
    Pass(absl::Minutes(2));
    ASSERT_EQ(registry_->RunsInMemory(), 0u);
  }
};

TEST_F(RegistryShelfTest, ARunThatEndedAMinuteAgoLeavesMemory) {
  MakeEndedRun();
  Pass(absl::Seconds(30));
  EXPECT_EQ(registry_->RunsInMemory(), 1u);
  Pass(absl::Seconds(31));
  EXPECT_EQ(registry_->RunsInMemory(), 0u);
}

TEST_F(RegistryShelfTest, ARunThatGoesOnDoesNot) {
  const StreamId stream = Open(1);
  AddPlace(stream, 0, 1);
  Sync();
  Pass(absl::Hours(1));
  EXPECT_EQ(registry_->RunsInMemory(), 1u);
}

TEST_F(RegistryShelfTest, WhatIsToldOfItStaysTheSame) {
  MakeEndedRun();
  Pass(absl::Seconds(30));
  const std::string before = Run().DebugString();
  const RunView view = *registry_->View("run");
  Shelve();
  EXPECT_EQ(Run().DebugString(), before);
  const RunView shelved = *registry_->View("run");
  EXPECT_EQ(shelved.last_step, 7u);
  ASSERT_EQ(shelved.processes.size(), view.processes.size());
  for (size_t i = 0; i < view.processes.size(); ++i) {
    EXPECT_EQ(shelved.processes[i].next_batch, view.processes[i].next_batch);
    EXPECT_EQ(shelved.processes[i].end, view.processes[i].end);
    EXPECT_EQ(shelved.processes[i].rank, view.processes[i].rank);
  }
  EXPECT_EQ(registry_->RunsInMemory(), 0u);
}

TEST_F(RegistryShelfTest, EndedRunsAreShelvedWhenTheDaemonBegins) {
  MakeEndedRun();
  const std::string before = Run().DebugString();
  const std::vector<RunUse> uses = registry_->Uses();
  Restart();
  EXPECT_EQ(registry_->RunsInMemory(), 0u);
  EXPECT_EQ(Run().DebugString(), before);
  ASSERT_EQ(registry_->Uses().size(), 1u);
  EXPECT_GT(uses[0].stored_bytes, 0u);
  EXPECT_EQ(registry_->Uses()[0].stored_bytes, uses[0].stored_bytes);
  EXPECT_TRUE(registry_->Uses()[0].is_checked);
}

TEST_F(RegistryShelfTest, ALaterStartComesAfterTheProcessesBefore) {
  MakeEndedRun();
  Shelve();
  const StreamId again = Open(9, 1);
  EXPECT_EQ(again.process, 2u);
  EXPECT_EQ(registry_->RunsInMemory(), 1u);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  EXPECT_EQ(Run().processes_size(), 3);
  AddPlace(again, 0, 1);
  End(again, v1::END_KIND_CLEAN);
  Sync();
  Shelve();
  EXPECT_EQ(Run().processes_size(), 3);
  EXPECT_EQ(Run().attempts(), 2u);
}

TEST_F(RegistryShelfTest, AProcessThatSendsAfterAllGoesOnWhereItWas) {
  MakeEndedRun();
  Shelve();
  const auto opened = registry_->Open(MakeHello(1), nullptr);
  ASSERT_TRUE(opened.ok()) << opened.status();
  EXPECT_EQ(opened->stream.process, 0u);
  EXPECT_EQ(opened->next_batch, 2u);
  ASSERT_EQ(opened->rings.size(), 1u);
  EXPECT_EQ(opened->rings[0].position(), 16u);
  AddStep(opened->stream, 8);
  EXPECT_EQ(Run().last_step(), 8u);
}

TEST_F(RegistryShelfTest, ItCanBeDeletedAndLoseItsRecords) {
  MakeEndedRun();
  Shelve();
  const auto dropped = registry_->DropRecords("run", RunPins());
  ASSERT_TRUE(dropped.ok()) << dropped.status();
  EXPECT_EQ(dropped->records, 4u);
  Sync();
  Shelve();
  EXPECT_EQ(registry_->Uses()[0].stored_bytes, 0u);
  EXPECT_TRUE(registry_->View("run")->records_deleted);
  const auto withdrawn = registry_->Withdraw("run", RunPins());
  ASSERT_TRUE(withdrawn.ok()) << withdrawn.status();
  registry_->Release("run", /*deleted=*/false);
  Shelve();
  EXPECT_EQ(Run().processes_size(), 2);
  ASSERT_TRUE(registry_->Withdraw("run", RunPins()).ok());
  registry_->Release("run", /*deleted=*/true);
  Pass(absl::Minutes(2));
  EXPECT_EQ(registry_->Run("run").status().code(), absl::StatusCode::kNotFound);
}

TEST_F(RegistryShelfTest, WhatTheStoreCannotReadIsAnErrorAndNotNothing) {
  MakeEndedRun();
  const uint64_t number = registry_->View("run")->number;
  Shelve();
  WriteSet spoilt;
  spoilt.Put(Table::kRuns, ProcessKey(number, 1), "no process");
  ASSERT_TRUE(store_->WriteAndWait(std::move(spoilt), absl::Minutes(1)).ok());
  for (const absl::Status& status :
       {registry_->Run("run").status(), registry_->View("run").status(),
        registry_->Open(MakeHello(9), nullptr).status()}) {
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
    EXPECT_THAT(std::string(status.message()),
                HasSubstr("a stored process of run run does not parse"));
  }
}

TEST(RegistryShelfOnASlowDiskTest, NothingLeavesBeforeItIsOnDisk) {
  MemoryStore store;
  absl::Time now = absl::FromUnixSeconds(1'700'000'000);
  const auto registry = *Registry::Load(&store, {.now = [&] { return now; }});
  const auto opened = registry->Open(MakeHello(1), nullptr);
  ASSERT_TRUE(opened.ok());
  ASSERT_TRUE(registry->End(opened->stream, v1::Goodbye(), nullptr).ok());
  const auto pass = [&] {
    now += absl::Minutes(5);
    registry->Tick();
  };
  pass();  // the run ends
  pass();
  EXPECT_EQ(registry->RunsInMemory(), 1u);
  store.Sync();
  pass();
  EXPECT_EQ(registry->RunsInMemory(), 0u);
  // Nor what retention took.
  ASSERT_TRUE(registry->DropRecords("run", RunPins()).ok());
  pass();
  EXPECT_EQ(registry->RunsInMemory(), 1u);
  store.Sync();
  pass();
  EXPECT_EQ(registry->RunsInMemory(), 0u);
  // What gets there while the run is withdrawn counts, too.
  ASSERT_TRUE(registry->DropRecords("run", RunPins()).ok());
  ASSERT_TRUE(registry->Withdraw("run", RunPins()).ok());
  store.Sync();
  registry->Release("run", /*deleted=*/false);
  pass();
  EXPECT_EQ(registry->RunsInMemory(), 0u);
}

class FindRunsTest : public RegistryTest {
 protected:
  // Runs a, b, c, d, each started a second after the one before.
  FindRunsTest() {
    for (const char* id : {"d", "c", "b", "a"}) {
      v1::Hello hello = MakeHello(1);
      hello.set_run(id);
      hello.set_experiment(*id < 'c' ? "first" : "second");
      hello.set_started_unix_ns(StartOf(*id));
      EXPECT_TRUE(
          registry_->Open(hello, nullptr, *id == 'b' ? "bob" : "").ok());
    }
  }
  static uint64_t StartOf(char id) {
    return 1'700'000'000'000'000'000 + uint64_t{1'000'000'000} * (id - 'a');
  }
  std::vector<std::string> Find(const RunQuery& query) {
    return *registry_->Find(query);
  }
};

TEST_F(FindRunsTest, AllComeInTheOrderOfTheirStart) {
  EXPECT_THAT(Find({}), ElementsAre("a", "b", "c", "d"));
}

TEST_F(FindRunsTest, ByExperimentTimeIdAndOwner) {
  EXPECT_THAT(Find({.experiment = "second"}), ElementsAre("c", "d"));
  EXPECT_THAT(Find({.started_since_unix_ns = StartOf('b')}),
              ElementsAre("b", "c", "d"));
  EXPECT_THAT(Find({.id_prefix = "b"}), ElementsAre("b"));
  EXPECT_THAT(Find({.id_prefix = "bb"}), IsEmpty());
  EXPECT_THAT(
      Find({.sees = [](const std::string& owner) { return owner == "bob"; }}),
      ElementsAre("b"));
}

TEST_F(FindRunsTest, APageIsTheNewestOfThoseBefore) {
  EXPECT_THAT(Find({.newest = 2}), ElementsAre("c", "d"));
  EXPECT_THAT(Find({.newest = 2, .before = "c"}), ElementsAre("a", "b"));
  EXPECT_THAT(Find({.newest = 2, .before = "a"}), IsEmpty());
  EXPECT_THAT(Find({.experiment = "first", .newest = 1}), ElementsAre("b"));
}

TEST_F(FindRunsTest, ARunThatIsNotSeenIsAsIfItWereNotThere) {
  const auto is_bobs = [](const std::string& owner) { return owner == "bob"; };
  EXPECT_THAT(Find({.sees = is_bobs, .before = "b"}), IsEmpty());
  for (const char* before : {"c", "e"}) {
    const absl::Status none =
        registry_->Find({.sees = is_bobs, .before = before}).status();
    EXPECT_EQ(none.code(), absl::StatusCode::kNotFound);
    EXPECT_EQ(none.message(), NoSuchRun(before).message());
  }
}

}  // namespace
}  // namespace traincheck::server
