#include "server/runs/registry.h"

#include <gmock/gmock.h>

#include "server/runs/registry_for_testing.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

// What was acknowledged can be read back, all of it, also after a restart.
TEST_F(RegistryTest, EveryBatchThatIsBookedIsInTheStore) {
  const StreamId stream = Open(1);
  constexpr uint64_t kBatches = 50;
  for (uint64_t i = 0; i < kBatches; ++i) AddStep(stream, i);
  Restart();
  uint64_t stored = 0;
  ASSERT_TRUE(store_
                  ->Scan(Table::kBatches, "", std::string(1, '\xff'),
                         [&](std::string_view, std::string_view) {
                           ++stored;
                           return true;
                         })
                  .ok());
  EXPECT_EQ(stored, kBatches);
  EXPECT_EQ(Process(0).next_batch(), kBatches);
  EXPECT_EQ(Process(0).records(), kBatches);
}

TEST_F(RegistryTest, ABatchThatComesAgainIsADuplicate) {
  const StreamId stream = Open(1);
  AddStep(stream, 0);
  v1::Batch again;
  again.set_number(0);
  const auto fate = registry_->AddBatch(stream, again, BatchFacts(), nullptr);
  ASSERT_TRUE(fate.ok()) << fate.status();
  EXPECT_EQ(*fate, Registry::Fate::kDuplicate);
  EXPECT_EQ(Process(0).records(), 1u);
}

TEST_F(RegistryTest, ARunRunsUntilItsProcessesHaveEnded) {
  const StreamId a = Open(1);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  EXPECT_EQ(Process(0).reason(), "streaming");
  End(a, v1::END_KIND_CLEAN);
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Process(0).reason(), "clean exit");
  // Its world is not known, so others may still announce themselves.
  Pass(absl::Milliseconds(900));
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  Pass(absl::Milliseconds(200));
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_EQ(Run().ended_unix_ns(), 1'700'000'000ull * 1'000'000'000);
}

TEST_F(RegistryTest, ARunWhoseRanksAllCameEndsAtOnce) {
  const StreamId a = Open(1);
  const StreamId b = Open(2);
  AddPlace(a, 0, 2);
  AddPlace(b, 1, 2);
  End(a, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  End(b, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_EQ(Run().world(), 2u);
}

TEST_F(RegistryTest, ALaterProcessOpensAnEndedRunAgain) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  End(a, v1::END_KIND_CLEAN);
  ASSERT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  const StreamId b = Open(2, /*attempt=*/1);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  EXPECT_EQ(Run().attempts(), 2u);
  AddPlace(b, 0, 1);
  End(b, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
}

TEST_F(RegistryTest, ARankThatDiedIsLostAtItsStep) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  AddStep(a, 0);
  AddStep(a, 11);
  End(a, v1::END_KIND_DIED);
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_LOST);
  EXPECT_EQ(Process(0).reason(), "died at step 12: ended without a clean exit");
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_LOST);
  EXPECT_EQ(Run().first_step(), 0u);
  EXPECT_EQ(Run().last_step(), 11u);
}

TEST_F(RegistryTest, ARankThatSaidWhyItEndsIsNotLost) {
  for (const auto& [cause, words] :
       {std::pair(ExitCause::kException,
                  "ended by an uncaught exception (a.Error) in step 12"),
        std::pair(ExitCause::kInterrupt,
                  "ended by SIGINT (Ctrl-C) in step 12")}) {
    const StreamId a = Open(1 + static_cast<uint32_t>(cause));
    AddPlace(a, 0, 1);
    AddStep(a, 11);
    BatchFacts facts;
    facts.exit_cause = static_cast<uint8_t>(cause);
    facts.exit_exception = "a.Error";
    Add(a, facts);
    End(a, v1::END_KIND_DIED);
    const v1::Process process = Process(static_cast<int>(cause) - 1);
    EXPECT_EQ(process.reason(), words);
    EXPECT_EQ(process.state(), v1::PROCESS_STATE_ENDED);
    EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  }
}

TEST_F(RegistryTest, AWorkerThatDiedDoesNotLoseTheRun) {
  const StreamId main = Open(1);
  const StreamId worker = Open(2);
  BatchFacts facts;
  facts.kind = BatchFacts::Kind{.kind = ProcessKind::kWorker,
                                .worker_id = 3,
                                .owner_pid = 1,
                                .owner_start_ticks = 1};
  Add(worker, facts);
  AddPlace(main, 0, 1);
  End(worker, v1::END_KIND_DIED);
  End(main, v1::END_KIND_CLEAN);
  EXPECT_EQ(Process(1).state(), v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(Process(1).identity().worker_id(), 3u);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
}

TEST_F(RegistryTest, ACleanExitOnRecordOutweighsTheRelay) {
  const StreamId a = Open(1);
  BatchFacts facts;
  facts.clean_exit = true;
  Add(a, facts);
  End(a, v1::END_KIND_DIED);
  EXPECT_EQ(Process(0).reason(), "clean exit");
}

TEST_F(RegistryTest, AHoleThatTheCountersDoNotKnowLeavesOpenWhatIsLost) {
  // 8 bytes of ring 1 in two batches, with 8 bytes between them.
  const auto stream_with_hole = [&](uint32_t pid, uint64_t committed) {
    const StreamId stream = Open(pid);
    AddSlices(stream, {MakeSlice(1, 0)});
    AddSlices(stream, {MakeSlice(1, 16)});
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    v1::RingReport* report = goodbye.add_rings();
    report->set_ring(1);
    report->set_offered_records(committed);
    report->set_committed_records(committed);
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  };
  stream_with_hole(1, 2);
  EXPECT_FALSE(Process(0).has_lost());
  EXPECT_THAT(Process(0).reason(), HasSubstr("8 bytes of its records"));
  stream_with_hole(2, 3);
  EXPECT_EQ(Process(1).lost(), 1u);
}

TEST_F(RegistryTest, MissingDefinitionsAreNamed) {
  const auto lacks = [&](uint32_t process) {
    return Process(process).reason().find("definitions are missing") !=
           std::string::npos;
  };
  const StreamId whole = Open(1);
  AddSlices(whole, {MakeSlice(0, 0), MakeSlice(1, 0)});
  EXPECT_FALSE(lacks(0));
  AddSlices(whole, {MakeSlice(0, 16)});
  EXPECT_TRUE(lacks(0));
  // Of another store's rest.
  AddSlices(Open(2), {MakeSlice(0, 80), MakeSlice(1, 80)});
  EXPECT_TRUE(lacks(1));
  AddSlices(Open(3), {MakeSlice(1, 80)});
  EXPECT_TRUE(lacks(2));
}

TEST_F(RegistryTest, SilenceMakesAProcessLostAndItMayComeBack) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  registry_->Disconnect(a);
  Pass(absl::Seconds(3));
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_DISCONNECTED);
  EXPECT_THAT(Process(0).reason(),
              HasSubstr("stream ended without goodbye 3 s ago"));
  EXPECT_FALSE(Process(0).has_lost());
  Pass(absl::Seconds(600));
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_LOST);
  EXPECT_THAT(Process(0).reason(), HasSubstr("nothing heard for 600 s"));
  EXPECT_FALSE(Process(0).has_lost());
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_LOST);

  const StreamId again = Open(1);
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_STREAMING);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  End(again, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
}

TEST_F(RegistryTest, RestartKeepsTheBooksAndDisconnectsWhatStreamed) {
  const StreamId a = Open(1);
  const StreamId b = Open(2);
  AddPlace(a, 0, 2);
  AddStep(a, 0);
  End(b, v1::END_KIND_CLEAN);
  Restart();
  EXPECT_EQ(Process(0).state(), v1::PROCESS_STATE_DISCONNECTED);
  EXPECT_EQ(Process(0).next_batch(), 2u);
  EXPECT_EQ(Process(0).records(), 2u);
  EXPECT_EQ(Process(0).rank(), 0);
  EXPECT_EQ(Process(1).reason(), "clean exit");
  EXPECT_EQ(registry_->RunningRuns().size(), 1u);
  EXPECT_EQ(registry_->Open(MakeHello(1), nullptr)->next_batch, 2u);
}

TEST_F(RegistryTest, RunNumbersAreNotUsedTwice) {
  Open(1);
  const uint64_t first = registry_->View("run")->number;
  Restart();
  v1::Hello other = MakeHello(9);
  other.set_run("other");
  ASSERT_TRUE(registry_->Open(other, nullptr).ok());
  EXPECT_GT(registry_->View("other")->number, first);
}

TEST_F(RegistryTest, ASecondLiveProcessOnARankIsMarkedAndNamesTheFirst) {
  const StreamId a = Open(1);
  const StreamId b = Open(2);
  AddPlace(a, 0, 2);
  AddPlace(b, 0, 2);
  EXPECT_THAT(Process(1).reason(),
              HasSubstr("rank 0 of attempt 0 is held by pid 1 on host node"));
  EXPECT_TRUE(registry_->View("run")->processes[1].refused);
  EXPECT_FALSE(registry_->View("run")->processes[0].refused);
  // When its stream breaks it comes back and is left out as before, whoever
  // comes first.
  registry_->Disconnect(b);
  registry_->Disconnect(a);
  AddStep(Open(2), 0);
  Open(1);
  EXPECT_TRUE(registry_->View("run")->processes[1].refused);
  EXPECT_FALSE(registry_->View("run")->processes[0].refused);
  EXPECT_EQ(Process(1).records(), 2u);
}

TEST_F(RegistryTest, ARankMayBeTakenFromAProcessThatIsGone) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  registry_->Disconnect(a);
  const StreamId b = Open(2);
  AddPlace(b, 0, 2);
  EXPECT_EQ(Process(1).reason(), "streaming");
}

TEST_F(RegistryTest, ProcessesBeforeTheirGroupExistsDoNotCollide) {
  const StreamId a = Open(1);
  const StreamId b = Open(2);
  AddPlace(a, 0, 1);
  AddPlace(b, 0, 1);
  EXPECT_EQ(Process(1).reason(), "streaming");
}

TEST_F(RegistryTest, BooksBalanceAtTheEnd) {
  const StreamId a = Open(1);
  AddStep(a, 0);
  AddStep(a, 1);
  EXPECT_EQ(Process(0).lost(), 0u);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  v1::RingReport* ring = goodbye.add_rings();
  ring->set_ring(1);
  ring->set_offered_records(10);
  ring->set_committed_records(7);
  ring->set_dropped_records(3);
  ASSERT_TRUE(registry_->End(a, goodbye, nullptr).ok());
  const v1::RingAccount account = Process(0).rings(0);
  EXPECT_EQ(account.offered(), account.committed() + account.dropped());
  EXPECT_EQ(account.committed(), account.stored() + Process(0).lost());
  EXPECT_EQ(Run().dropped(), 3u);
  EXPECT_EQ(Run().lost(), 5u);
}

v1::RingReport MakeReport(uint64_t committed, uint64_t dropped) {
  v1::RingReport report;
  report.set_ring(1);
  report.set_offered_records(committed + dropped);
  report.set_committed_records(committed);
  report.set_dropped_records(dropped);
  return report;
}

// For alerts, which ask by how much a counter has risen.
TEST_F(RegistryTest, WhatIsMissingIsCountedOnceAndStaysCounted) {
  const IngestCounts& counts = registry_->counts();
  const StreamId a = Open(1);
  AddStep(a, 0);
  v1::RingReports reports;
  *reports.add_rings() = MakeReport(1, 2);
  ASSERT_TRUE(registry_->Report(a, reports).ok());
  ASSERT_TRUE(registry_->Report(a, reports).ok());
  EXPECT_EQ(counts.dropped_records, 2u);
  EXPECT_EQ(counts.lost_records, 0u);
  BatchFacts facts;
  facts.dropped = {{1, 3}};
  Add(a, facts);
  EXPECT_EQ(counts.dropped_records, 3u);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  *goodbye.add_rings() = MakeReport(7, 4);
  ASSERT_TRUE(registry_->End(a, goodbye, nullptr).ok());
  EXPECT_EQ(counts.dropped_records, 4u);
  EXPECT_EQ(counts.lost_records, 5u);
  // One comes after all, and the relay says the same once more.
  const StreamId again = Open(1);
  Add(again, BatchFacts());
  ASSERT_TRUE(registry_->End(again, goodbye, nullptr).ok());
  EXPECT_EQ(Run().lost(), 4u);
  Pass(absl::Hours(1));
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_TRUE(registry_->RunningRuns().empty());
  EXPECT_EQ(counts.dropped_records, 4u);
  EXPECT_EQ(counts.lost_records, 5u);
}

TEST_F(RegistryTest, RunningRunsInNumbers) {
  const StreamId a = Open(1);
  const StreamId b = Open(2);
  const StreamId c = Open(3);
  AddPlace(a, 0, 3);
  AddStep(a, 7);
  AddStep(b, 9);
  v1::RingReports reports;
  *reports.add_rings() = MakeReport(1, 2);
  ASSERT_TRUE(registry_->Report(a, reports).ok());
  registry_->Disconnect(b);
  End(c, v1::END_KIND_DIED);
  const std::vector<RunningRun> runs = registry_->RunningRuns();
  ASSERT_EQ(runs.size(), 1u);
  EXPECT_EQ(runs[0].id, "run");
  EXPECT_EQ(runs[0].experiment, "experiment");
  EXPECT_EQ(runs[0].check_set, "rules");
  EXPECT_EQ(runs[0].last_step, 9u);
  EXPECT_EQ(runs[0].dropped_records, 2u);
  EXPECT_EQ(runs[0].processes.streaming, 1u);
  EXPECT_EQ(runs[0].processes.disconnected, 1u);
  EXPECT_EQ(runs[0].processes.lost, 1u);
  EXPECT_EQ(runs[0].processes.ended, 0u);
}

// The queue before the disk.
TEST(RegistryCounts, BatchesWaitUntilTheyAreDurable) {
  MemoryStore store;
  const auto registry = *Registry::Load(&store, {});
  const StreamId stream = registry->Open(MakeHello(1), nullptr)->stream;
  v1::Batch batch;
  batch.set_payload("12345");
  ASSERT_TRUE(registry->AddBatch(stream, batch, BatchFacts(), nullptr).ok());
  // It is there already.
  ASSERT_TRUE(registry->AddBatch(stream, batch, BatchFacts(), nullptr).ok());
  EXPECT_EQ(registry->counts().waiting_batches, 1u);
  EXPECT_EQ(registry->counts().waiting_bytes, 5u);
  store.Sync();
  EXPECT_EQ(registry->counts().waiting_batches, 0u);
  EXPECT_EQ(registry->counts().waiting_bytes, 0u);
}

TEST_F(RegistryTest, TheObserverSeesWhatIsDurable) {
  absl::Mutex mutex;
  std::optional<ProcessEnd> seen;
  registry_->SetObserver([&](const std::string& run) {
    absl::MutexLock lock(&mutex);
    seen = registry_->View(run)->processes[0].end;
  });
  End(Open(1), v1::END_KIND_CLEAN);
  absl::MutexLock lock(&mutex);
  const auto ended = [&] { return seen.has_value(); };
  ASSERT_TRUE(
      mutex.AwaitWithTimeout(absl::Condition(&ended), absl::Minutes(1)));
  EXPECT_EQ(*seen, ProcessEnd::kClean);
}

}  // namespace
}  // namespace traincheck::server
