// Attempts, places and who may hold them.
#include "server/runs/attempts.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "server/runs/registry_for_testing.h"

namespace traincheck::server {
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

// Passes over all processes take the registry's lock with them, so there are as
// few with many attempts as with two.
TEST_F(AttemptsTest, ALaterStartTakesNoMorePassesThanTheSecond) {
  const auto passes_of = [this](uint32_t pid, int32_t world,
                                const std::string& start) {
    const StreamId stream = Open(pid);
    const uint64_t before = passes_over_processes;
    AddPlace(stream, 0, world, start);
    const uint64_t passes = passes_over_processes - before;
    End(stream, v1::END_KIND_DIED);
    return passes;
  };
  uint32_t pid = 1;
  for (const int32_t world : {1, 2}) {
    for (const bool nonces : {false, true}) {
      const std::string nonce = nonces ? "nonce-" : "";
      passes_of(pid++, world, nonces ? nonce + "a" : "");
      const uint64_t second =
          passes_of(pid++, world, nonces ? nonce + "b" : "");
      for (int i = 0; i < 25; ++i) {
        EXPECT_EQ(
            passes_of(pid, world, nonces ? nonce + std::to_string(pid) : ""),
            second);
        ++pid;
      }
    }
  }
  EXPECT_GE(Run().attempts(), 50u);
}

TEST_F(AttemptsTest, ManySilentRanksAreLookedAtInOnePass) {
  for (uint32_t start = 0; start < 2; ++start) {
    for (int32_t rank = 0; rank < 20; ++rank) {
      const StreamId stream = Open(100 * start + rank + 1);
      AddPlace(stream, rank, 20,
               std::string(1, static_cast<char>('a' + start)));
      if (start == 0) registry_->Disconnect(stream);
    }
  }
  const uint64_t before = passes_over_processes;
  Pass(absl::Minutes(9));
  EXPECT_LE(passes_over_processes - before, 2u);
  EXPECT_THAT(Process(0).reason(), HasSubstr("a later start took its place"));
  EXPECT_THAT(Process(19).reason(), HasSubstr("a later start took its place"));
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

// It imported for so long that the other had trained to its end: its first
// record is younger than that end, the process is not.
TEST_F(AttemptsTest, ARankThatRecordsLateStaysInItsAttempt) {
  const auto unix_ns = [&](int64_t s) {
    return absl::ToUnixNanos(now_ + absl::Seconds(s));
  };
  const StreamId a = Open(1, /*attempt=*/1);
  AddPlace(a, 0, 2);
  v1::Goodbye goodbye;
  goodbye.set_end(v1::END_KIND_CLEAN);
  goodbye.set_ended_unix_ns(unix_ns(-10));
  ASSERT_TRUE(registry_->End(a, goodbye, nullptr).ok());
  v1::Hello hello = MakeHello(2, /*attempt=*/1);
  hello.set_process_started_unix_ns(unix_ns(-30));
  hello.set_started_unix_ns(unix_ns(-5));
  AddPlace(registry_->Open(hello, nullptr)->stream, 1, 2);
  EXPECT_EQ(Attempt(1), 1u);
}

// The rank that is missing in an attempt is not one that started behind it.
TEST_F(AttemptsTest, ARankOfALaterStartFillsNoPlaceOfTheOneBefore) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  End(a, v1::END_KIND_DIED);
  v1::Hello hello = MakeHello(2);
  hello.set_process_started_unix_ns(absl::ToUnixNanos(now_ + absl::Seconds(1)));
  hello.set_started_unix_ns(absl::ToUnixNanos(now_ + absl::Seconds(5)));
  AddPlace(registry_->Open(hello, nullptr)->stream, 1, 2);
  EXPECT_EQ(Attempt(1), 1u);
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

// An older agent: its relay may come back.
TEST_F(AttemptsTest, ABrokenConnectionEndsNoAttempt) {
  const StreamId a = Open(1);
  AddPlace(a, 0, 2);
  registry_->Disconnect(a);
  AddPlace(Open(2), 1, 2);
  EXPECT_EQ(Attempt(1), 0u);
}

TEST_F(AttemptsTest, NeitherDoesThatOfASiblingWithoutAGroup) {
  for (uint32_t pid : {1, 2}) {
    v1::Hello hello = MakeHello(pid);
    hello.mutable_process()->set_parent_pid(100);
    const StreamId stream = registry_->Open(hello, nullptr)->stream;
    AddPlace(stream, 0, 1);
    registry_->Disconnect(stream);
  }
  EXPECT_EQ(Attempt(1), 0u);
  // What another shell has started is another start, if that is all there is.
  v1::Hello hello = MakeHello(3);
  hello.mutable_process()->set_parent_pid(101);
  AddPlace(registry_->Open(hello, nullptr)->stream, 0, 1);
  EXPECT_EQ(Attempt(2), 1u);
}

TEST_F(AttemptsTest, TheEndIsThatOfTheProcessNotOfItsDelivery) {
  const auto deliver = [&](uint32_t pid, int64_t started_s, int64_t ended_s) {
    v1::Hello hello = MakeHello(pid);
    const auto at = [&](int64_t s) {
      return absl::ToUnixNanos(now_) + s * 1'000'000'000;
    };
    hello.set_started_unix_ns(at(started_s));
    const StreamId stream = registry_->Open(hello, nullptr)->stream;
    AddPlace(stream, 0, 1);
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_CLEAN);
    goodbye.set_ended_unix_ns(at(ended_s));
    ASSERT_TRUE(registry_->End(stream, goodbye, nullptr).ok());
  };
  deliver(1, -300, -200);
  deliver(2, -250, -220);  // beside the first
  deliver(3, -100, -50);
  EXPECT_EQ(Attempt(1), 0u);
  EXPECT_EQ(Attempt(2), 1u);
}

TEST_F(AttemptsTest, AnotherProgramInTheSameProcessIsAnotherProcess) {
  v1::Hello hello = MakeHello(1);
  hello.mutable_process()->set_image(7);
  const StreamId a = registry_->Open(hello, nullptr)->stream;
  AddPlace(a, 0, 1);
  hello.mutable_process()->set_image(8);
  const auto b = registry_->Open(hello, nullptr);
  ASSERT_TRUE(b.ok()) << b.status();
  AddPlace(b->stream, 0, 1);
  AddStep(b->stream, 0);
  ASSERT_EQ(Run().processes_size(), 2);
  EXPECT_EQ(Attempt(0), 0u);
  EXPECT_EQ(Attempt(1), 1u);
  EXPECT_EQ(Process(1).records(), 2u);
  // A relay of the first that died before it saw that is not waited for.
  registry_->Disconnect(a);
  End(b->stream, v1::END_KIND_CLEAN);
  Pass(absl::Seconds(20));
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_THAT(Process(0).reason(), HasSubstr("a later start took its place"));
  Restart();
  EXPECT_EQ(registry_->Open(hello, nullptr)->stream.process, 1u);
}

constexpr char kStart[][33] = {"00000000000000000000000000000aaa",
                               "00000000000000000000000000000bbb"};

class Starts : public AttemptsTest {
 protected:
  static uint32_t PidOf(int start, int rank) { return 10 * start + rank + 1; }
  // The process of the rank, once it is there.
  v1::Process Of(int start, int rank) {
    const v1::Run run = Run();
    for (const v1::Process& process : run.processes()) {
      if (process.identity().pid() == PidOf(start, rank)) return process;
    }
    ADD_FAILURE() << "start " << start << " has no rank " << rank;
    return {};
  }
  StreamId Start(int start, int rank) {
    const StreamId stream = Open(PidOf(start, rank));
    AddPlace(stream, rank, 2, kStart[start]);
    return stream;
  }
  // Are the processes of each start in one attempt, which is that of no other?
  void ExpectApart(uint32_t first, uint32_t second) {
    for (int rank : {0, 1}) {
      EXPECT_EQ(Of(0, rank).attempt(), first) << "rank " << rank;
      EXPECT_EQ(Of(1, rank).attempt(), second) << "rank " << rank;
      EXPECT_FALSE(registry_->View("run")->processes[rank].refused);
    }
  }
};

enum class Death { kSeen, kNotSeen, kSeenLate };

struct Restarts : Starts,
                  testing::WithParamInterface<std::tuple<Death, bool>> {};

// The daemon is there all the time; the other rank's death is always seen.
TEST_P(Restarts, AreTheNextAttempt) {
  const auto [death, both] = GetParam();
  const StreamId ranks[] = {Start(0, 0), Start(0, 1)};
  const auto is_unseen = [&](int rank) {
    return death != Death::kSeen && (both || rank == 0);
  };
  for (int rank : {0, 1}) {
    if (is_unseen(rank)) {
      registry_->Disconnect(ranks[rank]);
    } else {
      End(ranks[rank], v1::END_KIND_DIED);
    }
  }
  now_ += absl::Seconds(1);
  const StreamId again[] = {Start(1, 1), Start(1, 0)};
  ExpectApart(0, 1);
  now_ += absl::Seconds(1);
  for (int rank : {0, 1}) {
    if (death != Death::kSeenLate || !is_unseen(rank)) continue;
    v1::Goodbye goodbye;
    goodbye.set_end(v1::END_KIND_DIED);
    ASSERT_TRUE(registry_->End(Open(PidOf(0, rank)), goodbye, nullptr).ok());
  }
  for (const StreamId& stream : again) End(stream, v1::END_KIND_CLEAN);
  Pass(absl::Seconds(12));
  if (death == Death::kNotSeen) {
    EXPECT_EQ(Run().status(), v1::RUN_STATUS_RUNNING);
  }
  Pass(absl::Seconds(2));
  ExpectApart(0, 1);
  EXPECT_EQ(Run().status(), v1::RUN_STATUS_ENDED);
  EXPECT_EQ(Of(0, 0).state(), v1::PROCESS_STATE_LOST);
  EXPECT_FALSE(Of(0, 0).has_lost() && death == Death::kNotSeen);
  // One that comes back after all goes on where it was.
  Open(PidOf(0, 0));
  EXPECT_EQ(Of(0, 0).attempt(), 0u);
}

INSTANTIATE_TEST_SUITE_P(Deaths, Restarts,
                         testing::Combine(testing::Values(Death::kSeen,
                                                          Death::kNotSeen,
                                                          Death::kSeenLate),
                                          testing::Bool()));

struct Spools : Starts, testing::WithParamInterface<std::tuple<Death, bool>> {};

// The daemon was away during both starts, and what their relays left comes in
// any order. Not seen: the first start left no Goodbye; seen late: it comes on
// a stream after all else.
TEST_P(Spools, OfTwoStartsComeInAnyOrder) {
  const auto [death, both] = GetParam();
  std::vector<std::pair<int, int>> order = {{0, 0}, {0, 1}, {1, 0}, {1, 1}};
  do {
    Close();
    std::filesystem::remove_all(dir_);
    Load();
    std::vector<StreamId> late;
    for (const auto& [start, rank] : order) {
      v1::Hello hello = MakeHello(PidOf(start, rank));
      hello.set_resumes(true);
      // Hours before, by clocks that disagree.
      hello.set_started_unix_ns(absl::ToUnixNanos(
          now_ - absl::Hours(4 + start * (rank == 0 ? 1 : -1))));
      const StreamId stream = registry_->Open(hello, nullptr)->stream;
      AddPlace(stream, rank, 2, kStart[start]);
      if (start == 1 || death == Death::kSeen || (!both && rank == 1)) {
        End(stream, start == 1 ? v1::END_KIND_CLEAN : v1::END_KIND_DIED);
      } else if (death == Death::kNotSeen) {
        v1::Goodbye nobody_knows;
        nobody_knows.set_end(v1::END_KIND_DIED);
        ASSERT_TRUE(registry_->End(stream, nobody_knows, nullptr).ok());
      } else {
        late.push_back(stream);
      }
    }
    for (const StreamId& stream : late) End(stream, v1::END_KIND_DIED);
    const uint32_t first = order[0].first == 0 ? 0 : 1;
    ExpectApart(first, 1 - first);
    EXPECT_EQ(Run().attempts(), 2u);
    EXPECT_EQ(Run().missing_size(), 0);
  } while (std::next_permutation(order.begin(), order.end()));
}

INSTANTIATE_TEST_SUITE_P(Deaths, Spools,
                         testing::Combine(testing::Values(Death::kSeen,
                                                          Death::kNotSeen,
                                                          Death::kSeenLate),
                                          testing::Bool()));

TEST_F(Starts, OneWithoutAllItsRanksTakesNoneOfTheNext) {
  End(Start(0, 0), v1::END_KIND_DIED);
  Start(1, 0);
  Start(1, 1);
  EXPECT_EQ(Of(0, 0).attempt(), 0u);
  EXPECT_EQ(Of(1, 0).attempt(), 1u);
  EXPECT_EQ(Of(1, 1).attempt(), 1u);
  ASSERT_EQ(Run().missing_size(), 1);
  EXPECT_EQ(Run().missing(0).attempt(), 0u);
  EXPECT_EQ(Run().missing(0).rank(), 1);
}

TEST_F(Starts, AtTheSameTimeInOneRunAreApart) {
  for (int rank : {0, 1}) {
    Start(0, rank);
    Start(1, rank);
  }
  ExpectApart(0, 1);
  Pass(absl::Seconds(30));
  EXPECT_EQ(Of(0, 0).reason(), "streaming");
}

TEST_F(Starts, ARankThatMakesItsGroupAgainStays) {
  const StreamId a = Start(0, 0);
  Start(0, 1);
  End(Start(1, 0), v1::END_KIND_DIED);
  // As rank 1 of three now; it keeps its nonce.
  AddPlace(a, 1, 3, kStart[0]);
  EXPECT_EQ(Of(0, 0).attempt(), 0u);
}

TEST_F(Starts, TheLaunchersNumberIsTheLeast) {
  const StreamId a = Open(1, /*attempt=*/1000);
  AddPlace(a, 0, 2);  // by the environment, before it has a group
  EXPECT_EQ(Attempt(0), 1000u);
  AddPlace(a, 0, 2, kStart[0]);
  EXPECT_EQ(Attempt(0), 1000u);
  AddPlace(Open(2, 1000), 1, 2, kStart[0]);
  EXPECT_EQ(Attempt(1), 1000u);
}

// torchrun may restart its ranks without another number, with the store in
// which the nonce lies.
TEST_F(Starts, TheSameNonceInTheSamePlaceIsAnotherStart) {
  for (uint32_t pid : {1, 2}) {
    const StreamId stream = Open(pid);
    AddPlace(stream, static_cast<int32_t>(pid) - 1, 2, kStart[0]);
    End(stream, v1::END_KIND_DIED);
  }
  AddPlace(Open(12), 1, 2, kStart[0]);
  AddPlace(Open(11), 0, 2, kStart[0]);
  EXPECT_EQ(Attempt(0), 0u);
  EXPECT_EQ(Attempt(1), 0u);
  EXPECT_EQ(Attempt(2), 1u);
  EXPECT_EQ(Attempt(3), 1u);
}

TEST_F(Starts, WorkersGoWhereTheirOwnerGoes) {
  End(Start(0, 0), v1::END_KIND_DIED);
  const StreamId owner = Open(5);
  v1::Hello hello = MakeHello(6);
  hello.mutable_process()->set_kind(v1::PROCESS_KIND_WORKER);
  hello.mutable_process()->set_owner_pid(5);
  hello.mutable_process()->set_owner_start_ticks(5);
  const StreamId worker = registry_->Open(hello, nullptr)->stream;
  AddPlace(owner, 0, 2, kStart[1]);
  EXPECT_EQ(Attempt(2), 1u);
  // And where it is lost, they are.
  registry_->Disconnect(owner);
  registry_->Disconnect(worker);
  AddPlace(Open(7), 0, 2, "cc");
  Pass(absl::Seconds(16));
  EXPECT_EQ(Process(2).state(), v1::PROCESS_STATE_LOST);
}

}  // namespace
}  // namespace traincheck::server
