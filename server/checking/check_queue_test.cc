#include "server/checking/check_queue.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

// What must not happen has so long to happen all the same.
constexpr absl::Duration kTemptation = absl::Milliseconds(50);

v1::CheckProgress Finished() {
  v1::CheckProgress progress;
  progress.set_finished(true);
  return progress;
}

// A worker that waits for one run, on a thread of its own.
class WaitingWorker {
 public:
  explicit WaitingWorker(CheckQueue* queue)
      : thread_([this, queue] {
          due_ = queue->AwaitDue();
          returned_.Notify();
        }) {}
  ~WaitingWorker() { thread_.join(); }

  bool IsWaiting() const {
    return !returned_.WaitForNotificationWithTimeout(kTemptation);
  }
  // "": stopped.
  std::string Await() {
    returned_.WaitForNotification();
    return due_.has_value() ? due_->run : "";
  }

 private:
  std::optional<CheckQueue::Due> due_;
  absl::Notification returned_;
  std::thread thread_;
};

// Each wait of the worker is on a thread of its own; there is one at a time.
class CheckQueueTest : public testing::Test {
 protected:
  std::string Next() { return WaitingWorker(&queue_).Await(); }
  // Ends the test: the queue is stopped then.
  bool IsNothingDue() {
    WaitingWorker worker(&queue_);
    const bool waiting = worker.IsWaiting();
    queue_.Stop();
    return waiting;
  }

  CheckQueue queue_;
};

TEST_F(CheckQueueTest, TheWorkerWaitsUntilARunIsDue) {
  WaitingWorker worker(&queue_);
  EXPECT_TRUE(worker.IsWaiting());
  queue_.Wake("a");
  EXPECT_EQ(worker.Await(), "a");
}

TEST_F(CheckQueueTest, ARunThatIsWokenTwiceIsDueOnce) {
  queue_.Wake("a");
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, ButAgainIfTheWorkerWasAtIt) {
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, ABusyRunStarvesNoOther) {
  for (const char* run : {"a", "b", "c"}) queue_.Wake(run);
  EXPECT_EQ(Next(), "a");
  queue_.Wake("a");
  EXPECT_EQ(Next(), "b");
  EXPECT_EQ(Next(), "c");
  EXPECT_EQ(Next(), "a");
}

TEST_F(CheckQueueTest, WhatCanWaitComesWhenNothingElseIsDue) {
  queue_.WakeLater("a");
  queue_.Wake("b");
  EXPECT_TRUE(queue_.IsAhead("a"));
  EXPECT_EQ(Next(), "b");
  EXPECT_TRUE(queue_.IsAhead("b"));
  queue_.Wake("c");
  EXPECT_EQ(Next(), "c");
  EXPECT_FALSE(queue_.IsAhead("b"));
  EXPECT_EQ(Next(), "a");
  EXPECT_TRUE(IsNothingDue());
  EXPECT_FALSE(queue_.IsAhead("a"));
}

TEST_F(CheckQueueTest, NothingIsKeptOfARunThatIsDropped) {
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  queue_.Publish("a", v1::CheckProgress());
  EXPECT_TRUE(queue_.Progress("a").has_value());
  queue_.Drop("a");
  EXPECT_FALSE(queue_.Progress("a").has_value());
}

TEST_F(CheckQueueTest, StopWakesTheWorker) {
  WaitingWorker worker(&queue_);
  EXPECT_TRUE(worker.IsWaiting());
  queue_.Stop();
  EXPECT_EQ(worker.Await(), "");
}

TEST_F(CheckQueueTest, NothingIsDueOnceItIsStopped) {
  queue_.Wake("a");
  queue_.Stop();
  EXPECT_EQ(Next(), "");
}

TEST_F(CheckQueueTest, ForgetWaitsUntilTheWorkerHasLeftTheRun) {
  queue_.Wake("a");
  queue_.Wake("b");
  EXPECT_EQ(Next(), "a");
  std::atomic<bool> leaves = false;
  absl::Notification forgotten;
  std::thread deletes([&] {
    queue_.Forget("a");
    EXPECT_TRUE(leaves);
    forgotten.Notify();
  });
  EXPECT_FALSE(forgotten.WaitForNotificationWithTimeout(kTemptation));
  leaves = true;
  EXPECT_EQ(Next(), "b");
  deletes.join();
}

TEST_F(CheckQueueTest, NothingIsLeftOfAForgottenRun) {
  queue_.Wake("a");
  queue_.WaitForSets("a", {"rules"});
  queue_.Publish("a", Finished());
  queue_.Forget("a");
  queue_.OnSet("rules");
  EXPECT_FALSE(queue_.Progress("a").has_value());
  EXPECT_FALSE(queue_.IsWaiting("a"));
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, ForgetDoesNotWaitForAnotherRun) {
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  queue_.Forget("b");
}

TEST_F(CheckQueueTest, TheWorkerHearsOfForgottenRunsOnce) {
  queue_.Forget("a");
  queue_.Forget("b");
  queue_.Wake("a");  // another run of that id
  queue_.Wake("c");
  EXPECT_THAT(queue_.AwaitDue()->forgotten, ElementsAre("a", "b"));
  EXPECT_THAT(queue_.AwaitDue()->forgotten, IsEmpty());
}

TEST_F(CheckQueueTest, ASetMakesTheRunsDueThatWaitForIt) {
  queue_.WaitForSets("a", {"rules"});
  queue_.WaitForSets("b", {"rules"});
  queue_.WaitForSets("c", {"others", "more"});
  WaitingWorker worker(&queue_);
  queue_.OnSet("unknown");
  EXPECT_TRUE(worker.IsWaiting());
  queue_.OnSet("rules");
  EXPECT_EQ(worker.Await(), "a");
  EXPECT_EQ(Next(), "b");
  EXPECT_FALSE(queue_.IsWaiting("a"));
  EXPECT_TRUE(queue_.IsWaiting("c"));
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, ASetThatComesWhileTheWorkerIsAtTheRunIsNotMissed) {
  queue_.Wake("a");
  EXPECT_EQ(Next(), "a");
  queue_.WaitForSets("a", {"rules"});
  queue_.OnSet("rules");
  EXPECT_EQ(Next(), "a");
}

TEST_F(CheckQueueTest, ARunThatWaitsNoMoreIsLeftAloneByTheSet) {
  queue_.WaitForSets("a", {"rules"});
  queue_.StopWaiting("a");
  queue_.OnSet("rules");
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, CaughtUpIsARunThatIsNotDueAndNotLookedAt) {
  const auto is_caught_up = [&] {
    const v1::CheckProgress progress = *queue_.Progress("a");
    EXPECT_EQ(progress.finished(), progress.caught_up());
    return progress.caught_up();
  };
  queue_.Publish("a", Finished());
  EXPECT_TRUE(is_caught_up());
  queue_.Wake("a");
  EXPECT_FALSE(is_caught_up());
  EXPECT_EQ(Next(), "a");
  EXPECT_FALSE(is_caught_up());
  queue_.Wake("b");
  EXPECT_EQ(Next(), "b");
  EXPECT_TRUE(is_caught_up());
}

TEST_F(CheckQueueTest, ARunThatRestsIsGivenAfterItsRest) {
  queue_.Wake("run");
  EXPECT_EQ(Next(), "run");
  const absl::Time begin = absl::Now();
  queue_.Rest("run", kTemptation);
  // However often: it is one turn.
  queue_.Wake("run");
  queue_.Wake("run");
  EXPECT_FALSE(queue_.Progress("run").has_value());
  EXPECT_TRUE(queue_.IsAhead("run"));
  EXPECT_EQ(Next(), "run");
  EXPECT_GE(absl::Now() - begin, kTemptation);
  EXPECT_TRUE(IsNothingDue());
}

TEST_F(CheckQueueTest, OthersAreGivenWhileARunRests) {
  queue_.Wake("a");
  queue_.Wake("b");
  queue_.Wake("c");
  EXPECT_EQ(Next(), "a");
  queue_.Rest("a", absl::Hours(1));
  queue_.Wake("a");
  EXPECT_EQ(Next(), "b");
  EXPECT_EQ(Next(), "c");
  queue_.WakeLater("d");
  EXPECT_EQ(Next(), "d");
  queue_.Wake("b");
  EXPECT_EQ(Next(), "b");
  EXPECT_TRUE(IsNothingDue());
}

// Something is always due.
TEST_F(CheckQueueTest, ABusyRunDoesNotKeepOneThatHasRestedFromItsTurn) {
  queue_.Wake("rested");
  EXPECT_EQ(Next(), "rested");
  queue_.Rest("rested", absl::Milliseconds(1));
  queue_.Wake("rested");
  absl::SleepFor(absl::Milliseconds(5));
  queue_.Wake("busy");
  EXPECT_THAT((std::vector<std::string>{Next(), Next()}),
              testing::UnorderedElementsAre("busy", "rested"));
}

}  // namespace
}  // namespace traincheck::server
