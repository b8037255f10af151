#include "server/ingest/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "server/ingest/limits.h"
#include "server/ingest/test_batches.h"
#include "server/store/memory_store_for_testing.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  SessionTest() { Load(); }

  // The daemon, killed and started again on what was synced.
  void Load() {
    session_.reset();
    store_.Forget();
    registry_ = *Registry::Load(&store_, {});
    plans_ = std::make_unique<RunPlans>(
        RunPlans::Dependencies{.store = &store_, .registry = registry_.get()});
    session_ = MakeSession();
  }

  std::unique_ptr<Session> MakeSession() {
    return std::make_unique<Session>(
        Session::Dependencies{registry_.get(), plans_.get(), store_.id(),
                              budget_, pace_},
        owner_, [this] { ++wakes_; });
  }

  absl::Status Greet(uint32_t pid = 1) {
    return session_->Receive(Request(MakeHello("run", pid)));
  }
  absl::Status Send(const v1::Batch& batch) {
    return session_->Receive(Request(batch));
  }
  // A greeted session whose Welcome was taken.
  v1::Welcome Welcomed() {
    EXPECT_TRUE(Greet().ok());
    store_.Sync();
    return session_->NextReply().value_or(v1::IngestReply()).welcome();
  }
  std::optional<uint64_t> Acknowledged() {
    const std::optional<v1::IngestReply> reply = session_->NextReply();
    if (!reply.has_value() || !reply->has_acknowledged()) return std::nullopt;
    return reply->acknowledged().next_batch();
  }
  v1::Process Process() { return registry_->Run("run")->processes(0); }

  MemoryStore store_;
  std::unique_ptr<Registry> registry_;
  std::unique_ptr<RunPlans> plans_;
  std::unique_ptr<Session> session_;
  std::string owner_;
  std::shared_ptr<ByteBudget> budget_ =
      std::make_shared<ByteBudget>(kMaxUnsyncedBytes);
  std::shared_ptr<BatchPace> pace_ = std::make_shared<BatchPace>();
  int wakes_ = 0;
};

TEST_F(SessionTest, NothingIsReadWhileOthersHaveUsedTheBudgetUp) {
  budget_ = std::make_shared<ByteBudget>(1);
  session_ = MakeSession();
  Welcomed();
  EXPECT_TRUE(session_->may_read());
  EXPECT_TRUE(Send(StepBatch(0)).ok());
  const auto second = MakeSession();
  EXPECT_FALSE(session_->may_read());
  EXPECT_FALSE(second->may_read());
  store_.Sync();
  EXPECT_EQ(budget_->used(), 0u);
  EXPECT_TRUE(session_->may_read());
  EXPECT_TRUE(second->may_read());
}

TEST_F(SessionTest, ARunIsWrittenByItsOwnerAlone) {
  owner_ = "alice";
  session_ = MakeSession();
  EXPECT_TRUE(Greet().ok());
  EXPECT_EQ(registry_->OwnerOf("run"), "alice");
  owner_ = "bob";
  const auto other = MakeSession();
  v1::Hello hello = MakeHello("run", 2);
  EXPECT_EQ(other->Receive(Request(hello)).code(),
            absl::StatusCode::kPermissionDenied);
  hello = MakeHello("run", 1);
  hello.set_resumes(true);
  EXPECT_EQ(MakeSession()->Receive(Request(hello)).code(),
            absl::StatusCode::kPermissionDenied);
  EXPECT_TRUE(session_->CheckCurrent().ok());
  EXPECT_EQ(registry_->Run("run")->processes_size(), 1);
}

// What others can know of a process, its host, pid and start, is not enough.
TEST_F(SessionTest, AStreamIsTakenOverOnlyByWhoeverKnowsTheImage) {
  v1::Hello hello = MakeHello("run", 1);
  hello.mutable_process()->set_image(0x1234567890abcdef);
  EXPECT_TRUE(session_->Receive(Request(hello)).ok());
  EXPECT_EQ(Process().identity().image(), 0u);  // is shown to nobody
  for (const uint64_t guess : {uint64_t{0}, uint64_t{1}}) {
    v1::Hello forged = MakeHello("run", 1);
    *forged.mutable_process() = Process().identity();
    forged.mutable_process()->set_image(guess);
    forged.set_resumes(true);
    const auto forger = MakeSession();
    EXPECT_TRUE(forger->Receive(Request(forged)).ok());
    EXPECT_TRUE(session_->CheckCurrent().ok());
  }
  hello.set_resumes(true);
  const auto relay = MakeSession();
  EXPECT_TRUE(relay->Receive(Request(hello)).ok());
  EXPECT_FALSE(session_->CheckCurrent().ok());
}

TEST_F(SessionTest, WelcomesOnceTheProcessIsDurable) {
  ASSERT_TRUE(Greet().ok());
  EXPECT_FALSE(session_->NextReply().has_value());
  store_.Sync();
  EXPECT_EQ(wakes_, 1);
  const v1::Welcome welcome = session_->NextReply()->welcome();
  EXPECT_EQ(welcome.store_id(), store_.id());
  EXPECT_EQ(welcome.next_batch(), 0u);
  EXPECT_EQ(welcome.format_version(), kRecordFormatVersion);
  EXPECT_EQ(welcome.credit_bytes(), kCreditBytes);
}

TEST_F(SessionTest, KeepsTextsOfPeersInPrintableForm) {
  v1::Hello hello = MakeHello("run", 1);
  hello.set_experiment("x\n2026-01-01 run begins");
  ASSERT_TRUE(session_->Receive(Request(hello)).ok());
  EXPECT_EQ(registry_->Run("run")->experiment(),
            "x\\u{a}2026-01-01 run begins");
}

TEST_F(SessionTest, TellsThePlanOfTheRunBehindTheWelcome) {
  ASSERT_TRUE(Greet().ok());
  ASSERT_TRUE(
      plans_->ChangeUntrusted("run", R"({"format": 1, "mode": "off"})").ok());
  // Waiting for that has synced what was queued before it.
  EXPECT_TRUE(session_->NextReply()->has_welcome());
  const v1::PlanChange first = session_->NextReply()->plan_change();
  EXPECT_EQ(first.version(), 1u);
  EXPECT_NE(first.plan().find("\"off\""), std::string::npos);
  EXPECT_FALSE(session_->NextReply().has_value());
  ASSERT_TRUE(plans_->ChangeUntrusted("run", R"({"format": 1})").ok());
  EXPECT_EQ(session_->NextReply()->plan_change().version(), 2u);
  EXPECT_FALSE(session_->NextReply().has_value());
  // A stream that takes over is told again.
  session_->Disconnect();
  session_ = MakeSession();
  v1::Hello hello = MakeHello("run", 1);
  hello.set_resumes(true);
  ASSERT_TRUE(session_->Receive(Request(hello)).ok());
  store_.Sync();
  EXPECT_TRUE(session_->NextReply()->has_welcome());
  EXPECT_EQ(session_->NextReply()->plan_change().version(), 2u);
}

TEST_F(SessionTest, AcknowledgesWhatIsSyncedAndNothingElse) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  ASSERT_TRUE(Send(StepBatch(1)).ok());
  EXPECT_FALSE(session_->NextReply().has_value());
  store_.Sync();
  EXPECT_EQ(Acknowledged(), 2u);
  EXPECT_FALSE(session_->NextReply().has_value());
  EXPECT_EQ(store_.Count(Table::kBatches), 2u);
}

TEST(ByteBudgetTest, SaysThatItWasUsedUpUntilItIsNot) {
  ByteBudget budget(10);
  budget.Take(9);
  EXPECT_FALSE(budget.TakeWasUsedUp());
  budget.Take(1);
  EXPECT_TRUE(budget.TakeWasUsedUp());
  EXPECT_TRUE(budget.TakeWasUsedUp());
  budget.Return(5);
  // Who found it used up since the last look is to try again.
  EXPECT_TRUE(budget.TakeWasUsedUp());
  EXPECT_FALSE(budget.TakeWasUsedUp());
}

TEST_F(SessionTest, AsksForFewerBatchesTheMoreStreamsThereAre) {
  Welcomed();
  const auto gather_ms = [&](size_t streams, uint64_t number) {
    pace_->SetStreams(streams);
    EXPECT_TRUE(Send(StepBatch(number)).ok());
    store_.Sync();
    return session_->NextReply()->acknowledged().gather_ms();
  };
  EXPECT_EQ(gather_ms(1, 0), 1u);
  EXPECT_EQ(gather_ms(200, 1), 200u);
  EXPECT_EQ(gather_ms(30'000, 2), BatchPace::kMostGatherMs);
  EXPECT_EQ(gather_ms(2, 3), 2u);
}

TEST_F(SessionTest, OrderIsEnforced) {
  EXPECT_EQ(Send(StepBatch(0)).code(), absl::StatusCode::kInvalidArgument);
  session_ = MakeSession();
  ASSERT_TRUE(Greet().ok());
  EXPECT_EQ(Greet().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(session_->Receive(v1::IngestRequest()).code(),
            absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      session_->Receive(GoodbyeRequest(v1::END_KIND_UNSPECIFIED, {})).code(),
      absl::StatusCode::kInvalidArgument);
  EXPECT_TRUE(session_->Receive(GoodbyeRequest(v1::END_KIND_CLEAN, {})).ok());
  EXPECT_EQ(Send(StepBatch(0)).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(SessionTest, WrongVersionIsRefusedAndNothingIsMade) {
  v1::Hello hello = MakeHello("run", 1);
  hello.set_format_version_min(90);
  hello.set_format_version_max(91);
  EXPECT_EQ(session_->Receive(Request(hello)).code(),
            absl::StatusCode::kUnimplemented);
  EXPECT_TRUE(registry_->RunIds().empty());
}

TEST_F(SessionTest, DuplicatesAreAcknowledgedAndNotStoredAgain) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  store_.Sync();
  EXPECT_EQ(Acknowledged(), 1u);
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  EXPECT_EQ(Acknowledged(), 1u);
  store_.Sync();
  EXPECT_EQ(Process().records(), 1u);
}

TEST_F(SessionTest, ResumesAtTheCursorAfterTheDaemonWasKilled) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  store_.Sync();
  ASSERT_TRUE(Send(StepBatch(1)).ok());  // never synced
  Load();
  EXPECT_EQ(Welcomed().next_batch(), 1u);
  ASSERT_TRUE(Send(StepBatch(1)).ok());
  store_.Sync();
  EXPECT_EQ(Process().records(), 2u);
  EXPECT_EQ(registry_->Run("run")->processes_size(), 1);
}

TEST_F(SessionTest, MissingBatchesAreAcceptedAndCountedAsLost) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(3)).ok());
  store_.Sync();
  EXPECT_EQ(Acknowledged(), 4u);
  EXPECT_FALSE(Process().has_lost());  // not known until the last counters
  ASSERT_TRUE(
      session_
          ->Receive(GoodbyeRequest(v1::END_KIND_CLEAN, {MakeReport(1, 4, 2)}))
          .ok());
  EXPECT_EQ(Process().lost(), 3u);
  EXPECT_EQ(Process().dropped(), 2u);
}

TEST_F(SessionTest, CorruptBatchIsQuarantinedAndTheStreamGoesOn) {
  Welcomed();
  v1::Batch corrupt = StepBatch(0);
  corrupt.mutable_payload()->back() ^= 1;
  ASSERT_TRUE(Send(corrupt).ok());
  ASSERT_TRUE(Send(StepBatch(1)).ok());
  store_.Sync();
  EXPECT_EQ(Acknowledged(), 2u);
  EXPECT_EQ(store_.Count(Table::kQuarantine), 1u);
  EXPECT_EQ(store_.Count(Table::kBatches), 1u);
  EXPECT_EQ(registry_->quarantined_batches(), 1u);
  EXPECT_EQ(Process().records(), 1u);
  ASSERT_TRUE(
      session_
          ->Receive(GoodbyeRequest(v1::END_KIND_CLEAN, {MakeReport(1, 2, 0)}))
          .ok());
  EXPECT_EQ(Process().lost(), 1u);
}

TEST_F(SessionTest, BatchThatStraddlesTheCursorIsNotStoredTwice) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  v1::Batch straddling =
      MakeBatch(1, {{.ring = 1,
                     .from = 0,
                     .bytes = StepClosedRecord(0) + StepClosedRecord(1),
                     .records = 2}});
  ASSERT_TRUE(Send(straddling).ok());
  store_.Sync();
  EXPECT_EQ(store_.Count(Table::kBatches), 1u);
  EXPECT_EQ(store_.Count(Table::kQuarantine), 1u);
  EXPECT_EQ(Process().rings(0).stored(), 1u);
}

TEST_F(SessionTest, OverTheLimitEndsTheStream) {
  Welcomed();
  v1::Batch large = StepBatch(0);
  large.set_payload(std::string(kMaxPayloadBytes + 1, 'x'));
  EXPECT_EQ(Send(large).code(), absl::StatusCode::kResourceExhausted);
  v1::IngestRequest reports;
  for (int i = 0; i <= kMaxRingReports; ++i) {
    reports.mutable_ring_reports()->add_rings();
  }
  EXPECT_EQ(session_->Receive(reports).code(),
            absl::StatusCode::kResourceExhausted);
}

TEST_F(SessionTest, ReadsNothingMoreWhileTheCreditWaitsForTheDisk) {
  Welcomed();
  EXPECT_TRUE(session_->may_read());
  v1::Batch batch = StepBatch(0);
  // Garbage counts too: it takes the same room.
  batch.set_payload(std::string(kMaxPayloadBytes, 'x'));
  for (uint64_t i = 0; i < kCreditBytes / kMaxPayloadBytes; ++i) {
    EXPECT_TRUE(session_->may_read());
    batch.set_number(i);
    ASSERT_TRUE(Send(batch).ok());
  }
  EXPECT_FALSE(session_->may_read());
  store_.Sync();
  EXPECT_TRUE(session_->may_read());
}

TEST_F(SessionTest, GoodbyeIsAnsweredOnceTheEndIsDurable) {
  Welcomed();
  ASSERT_TRUE(session_->Receive(GoodbyeRequest(v1::END_KIND_CLEAN, {})).ok());
  EXPECT_FALSE(session_->NextReply().has_value());
  EXPECT_FALSE(session_->finished());
  store_.Sync();
  EXPECT_TRUE(session_->NextReply()->acknowledged().goodbye());
  EXPECT_TRUE(session_->finished());
  EXPECT_EQ(Process().state(), v1::PROCESS_STATE_ENDED);
}

TEST_F(SessionTest, WelcomeTellsWhatIsStoredOfEachRing) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  ASSERT_TRUE(Send(StepBatch(1)).ok());
  store_.Sync();
  session_->Disconnect();
  const auto second = MakeSession();
  v1::Hello hello = MakeHello("run", 1);
  hello.set_resumes(true);
  ASSERT_TRUE(second->Receive(Request(hello)).ok());
  EXPECT_FALSE(second->NextReply().has_value());
  store_.Sync();
  const v1::Welcome welcome = second->NextReply()->welcome();
  EXPECT_EQ(welcome.next_batch(), 2u);
  ASSERT_EQ(welcome.rings_size(), 1);
  EXPECT_EQ(welcome.rings(0).ring(), 1u);
  EXPECT_EQ(welcome.rings(0).position(), StepBatch(1).slices(0).to());
  EXPECT_EQ(welcome.rings(0).records(), 2u);
}

TEST_F(SessionTest, ASecondStreamOfALiveProcessMustResume) {
  Welcomed();
  const auto second = MakeSession();
  v1::Hello hello = MakeHello("run", 1);
  const absl::Status refused = second->Receive(Request(hello));
  EXPECT_EQ(refused.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("pid 1 on host node"));
  hello.set_resumes(true);
  EXPECT_TRUE(session_->CheckCurrent().ok());
  EXPECT_TRUE(second->Receive(Request(hello)).ok());
  EXPECT_EQ(session_->CheckCurrent().code(), absl::StatusCode::kAborted);
  EXPECT_TRUE(second->CheckCurrent().ok());
  EXPECT_EQ(Send(StepBatch(0)).code(), absl::StatusCode::kAborted);
  session_->Disconnect();  // of the old one: changes nothing
  EXPECT_EQ(Process().state(), v1::PROCESS_STATE_STREAMING);
  EXPECT_TRUE(second->Receive(Request(StepBatch(0))).ok());
}

TEST_F(SessionTest, CallbacksMayComeAfterTheSession) {
  Welcomed();
  ASSERT_TRUE(Send(StepBatch(0)).ok());
  session_->Disconnect();
  session_.reset();
  store_.Sync();
  EXPECT_EQ(Process().records(), 1u);
}

}  // namespace
}  // namespace traincheck::server
