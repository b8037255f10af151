// Attempts, places and who may hold them.
#include "server/runs/attempts.h"

#include <gmock/gmock.h>

#include "server/runs/registry_for_testing.h"

namespace traincheck {
namespace {

using testing::HasSubstr;

class AttemptsTest : public RegistryTest {
 protected:
  uint32_t Attempt(int number) { return Process(number).attempt(); }
};

TEST_F(AttemptsTest, AScriptStartedAgainIsTheNextAttempt) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  End(a, v1::END_KIND_CLEAN);
  const StreamId b = Open(2);
  AddPlace(b, 0, 1);
  EXPECT_EQ(Attempt(0), 0u);
  EXPECT_EQ(Attempt(1), 1u);
  EXPECT_EQ(Run().attempts(), 2u);
  Restart();
  EXPECT_EQ(Attempt(1), 1u);
}

TEST_F(AttemptsTest, AllRanksOfASecondStartMeetInOneAttempt) {
  for (uint32_t start = 0; start < 3; ++start) {
    const StreamId a = Open(10 * start + 1);
    const StreamId b = Open(10 * start + 2);
    AddPlace(a, 0, 2);
    AddPlace(b, 1, 2);
    EXPECT_EQ(Attempt(2 * start), start);
    EXPECT_EQ(Attempt(2 * start + 1), start);
    End(a, v1::END_KIND_DIED);
    End(b, v1::END_KIND_DIED);
  }
  EXPECT_THAT(Process(0).reason(), HasSubstr("superseded by attempt 2"));
}

TEST_F(AttemptsTest, AnotherWorldSizeIsAnotherAttempt) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  End(a, v1::END_KIND_DIED);
  const StreamId b = Open(2);
  AddPlace(b, 3, 4);
  EXPECT_EQ(Attempt(1), 1u);
  EXPECT_EQ(Run().world(), 4u);
}

TEST_F(AttemptsTest, ReconnectingIsNoAttempt) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  registry_->Disconnect(a);
  Pass(absl::Seconds(601));
  const StreamId again = Open(1);
  AddPlace(again, 0, 2);
  EXPECT_EQ(Attempt(0), 0u);
  EXPECT_EQ(Run().attempts(), 1u);
}

TEST_F(AttemptsTest, ARankThatWasOnlyLateStaysInItsAttempt) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  now_ += absl::Seconds(100);
  End(a, v1::END_KIND_CLEAN);
  // Its spool is delivered after rank 0 has ended, but it ran beside it.
  v1::Hello hello = MakeHello(2);
  hello.set_started_unix_ns(absl::ToUnixNanos(now_ - absl::Seconds(50)));
  const StreamId b = registry_->Open(hello, nullptr)->stream;
  AddPlace(b, 1, 2);
  EXPECT_EQ(Attempt(1), 0u);
}

TEST_F(AttemptsTest, ARestartedRankDoesNotCountTheOldOneAsLost) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  End(a, v1::END_KIND_DIED);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_LOST);
  const StreamId b = Open(2, /*attempt=*/1);
  AddPlace(b, 0, 1);
  End(b, v1::END_KIND_CLEAN);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_EQ(Process(0).reason(),
            "died at step 0: ended without a clean exit; superseded by "
            "attempt 1");
}

TEST_F(AttemptsTest, AChildThatInheritsARankIsNone) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  v1::Hello hello = MakeHello(2);
  hello.mutable_process()->set_parent_pid(1);
  const StreamId child = registry_->Open(hello, nullptr)->stream;
  AddPlace(child, 0, 2);
  EXPECT_EQ(Process(1).identity().kind(), v1::PROCESS_KIND_OTHER);
  EXPECT_EQ(Process(1).reason(), "streaming");
  EXPECT_FALSE(registry_->View("run")->processes[1].refused);
}

TEST_F(AttemptsTest, ScriptsThatOneProcessStartsShareItsAttempt) {
  Open(1);
  for (uint32_t pid = 2; pid < 5; ++pid) {
    v1::Hello hello = MakeHello(pid);
    hello.mutable_process()->set_parent_pid(1);
    const StreamId stream = registry_->Open(hello, nullptr)->stream;
    AddPlace(stream, 0, 1);
    End(stream, v1::END_KIND_CLEAN);
  }
  EXPECT_EQ(Run().attempts(), 1u);
}

TEST_F(AttemptsTest, AWorkerBelongsToTheAttemptOfItsOwner) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 1);
  End(a, v1::END_KIND_DIED);
  AddPlace(Open(2), 0, 1);
  const StreamId worker = Open(3);
  BatchFacts facts;
  facts.kind = BatchFacts::Kind{.kind = ProcessKind::kWorker,
                                .worker_id = 0,
                                .owner_pid = 2,
                                .owner_start_ticks = 2};
  Add(worker, facts);
  EXPECT_EQ(Attempt(2), 1u);
}

TEST_F(AttemptsTest, MissingRanksAreNamedWithTheirReason) {
  const StreamId a = Open(1);
  AddPlace(a, 1, 3);
  ASSERT_EQ(Run().missing_size(), 2);
  EXPECT_EQ(Run().missing(0).rank(), 0);
  EXPECT_EQ(Run().missing(1).rank(), 2);
  EXPECT_EQ(Run().missing(0).reason(), "no process announced this rank yet");
  End(a, v1::END_KIND_CLEAN);
  Pass(absl::Seconds(5));
  EXPECT_EQ(Run().missing(0).reason(), "no process announced this rank");
}

}  // namespace
}  // namespace traincheck
