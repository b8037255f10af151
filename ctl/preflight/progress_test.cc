#include "ctl/preflight/progress.h"

#include <gtest/gtest.h>
#include <signal.h>

namespace traincheck::ctl {
namespace {

using std::chrono::seconds;

void AddRank(v1::ProcessState state, int64_t last_step, v1::Run* run,
             v1::ProcessKind kind = v1::PROCESS_KIND_MAIN) {
  v1::Process* const process = run->add_processes();
  process->mutable_identity()->set_kind(kind);
  process->set_state(state);
  if (last_step >= 0) process->set_last_step(last_step);
}

TEST(AllReached, CountsTheRanksOfTheWorld) {
  v1::Run run;
  EXPECT_FALSE(AllReached(run, 3));
  run.set_world(2);
  AddRank(v1::PROCESS_STATE_ENDED, 2, &run);
  run.mutable_processes(0)->set_rank(0);
  EXPECT_FALSE(AllReached(run, 3));
  AddRank(v1::PROCESS_STATE_STREAMING, 1, &run);
  run.mutable_processes(1)->set_rank(1);
  EXPECT_FALSE(AllReached(run, 3));
  run.mutable_processes(1)->set_last_step(2);
  EXPECT_TRUE(AllReached(run, 3));
  AddRank(v1::PROCESS_STATE_STREAMING, -1, &run, v1::PROCESS_KIND_WORKER);
  EXPECT_TRUE(AllReached(run, 3));
}

// Of two ranks the first reached its step in both attempts and the other
// crashed in both: nobody was through.
TEST(AllReached, DoesNotAddUpAttempts) {
  v1::Run run;
  run.set_world(2);
  for (uint32_t attempt : {0, 1}) {
    for (int rank : {0, 1}) {
      AddRank(v1::PROCESS_STATE_ENDED, rank == 0 ? 19 : 4, &run);
      v1::Process& process = *run.mutable_processes()->rbegin();
      process.set_attempt(attempt);
      process.set_rank(rank);
      process.set_world(2);
    }
  }
  EXPECT_FALSE(AllReached(run, 20));
  // One attempt that was through is enough: what a launcher starts after it
  // was not asked for.
  run.mutable_processes(1)->set_last_step(19);
  EXPECT_TRUE(AllReached(run, 20));
}

TEST(AllReached, CountsARankOnce) {
  v1::Run run;
  run.set_world(2);
  for (int i : {0, 1}) {
    AddRank(v1::PROCESS_STATE_ENDED, 19, &run);
    run.mutable_processes(i)->set_rank(0);
  }
  EXPECT_FALSE(AllReached(run, 20));
  run.mutable_processes(1)->set_rank(1);
  EXPECT_TRUE(AllReached(run, 20));
}

TEST(AnyEndedThere, NeedsARankThatWasThrough) {
  v1::Run run;
  AddRank(v1::PROCESS_STATE_STREAMING, 2, &run);
  AddRank(v1::PROCESS_STATE_ENDED, 1, &run);
  AddRank(v1::PROCESS_STATE_ENDED, 2, &run, v1::PROCESS_KIND_WORKER);
  EXPECT_FALSE(AnyEndedThere(run, 3));
  run.mutable_processes(0)->set_state(v1::PROCESS_STATE_ENDED);
  EXPECT_TRUE(AnyEndedThere(run, 3));
}

class StopOverseerTest : public testing::Test {
 protected:
  // The signals of the next seconds, as "T" and "K".
  std::string During(int count) {
    std::string signals;
    for (int i = 0; i < count; ++i) {
      now_ += seconds(1);
      const int due = overseer_.SignalDue();
      if (due == SIGTERM) signals += "T";
      if (due == SIGKILL) signals += "K";
    }
    return signals;
  }

  v1::Run run_;
  StopOverseer::Time now_{5000};
  StopOverseer overseer_{3, {[this] { return run_; }, [this] { return now_; }}};
};

TEST_F(StopOverseerTest, ATrainingThatIsNotThereYetIsLeftAlone) {
  AddRank(v1::PROCESS_STATE_STREAMING, 1, &run_);
  EXPECT_EQ(During(1000), "");
  // It ended by itself, and its launcher may have more to do.
  run_.mutable_processes(0)->set_state(v1::PROCESS_STATE_ENDED);
  EXPECT_EQ(During(1000), "");
  EXPECT_FALSE(overseer_.has_ended_it());
}

TEST_F(StopOverseerTest, ALauncherIsEndedAfterItsRanks) {
  AddRank(v1::PROCESS_STATE_ENDED, 2, &run_);
  EXPECT_EQ(During(10), "");
  // It starts another one.
  AddRank(v1::PROCESS_STATE_STREAMING, -1, &run_);
  EXPECT_EQ(During(1), "T");
  EXPECT_TRUE(overseer_.has_ended_it());
  EXPECT_EQ(During(9), "");
  EXPECT_EQ(During(100), "K");
}

TEST_F(StopOverseerTest, RanksMayTakeAMinuteToEnd) {
  AddRank(v1::PROCESS_STATE_STREAMING, 2, &run_);
  EXPECT_EQ(During(60), "");
  EXPECT_EQ(During(1), "T");
}

}  // namespace
}  // namespace traincheck::ctl
