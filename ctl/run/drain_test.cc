#include "ctl/run/drain.h"

#include <deque>

#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using std::chrono::milliseconds;

// A server that answers from a list, its last answer for ever, and a clock
// that only the pauses move.
class DrainTest : public testing::Test {
 protected:
  static v1::Run RunWith(v1::RunStatus status) {
    v1::Run run;
    run.set_status(status);
    return run;
  }

  DrainResult Run(milliseconds timeout, bool server_answered = true) {
    return Drain({timeout, server_answered}, {[this] {
                                                ++calls_;
                                                absl::StatusOr<v1::Run> answer =
                                                    answers_.front();
                                                if (answers_.size() > 1)
                                                  answers_.pop_front();
                                                return answer;
                                              },
                                              [this] { return now_; },
                                              [this](milliseconds pause) {
                                                now_ += pause;
                                                return now_ >= interrupted_at_;
                                              }});
  }

  std::deque<absl::StatusOr<v1::Run>> answers_;
  milliseconds now_{0};
  milliseconds interrupted_at_ = milliseconds::max();
  int calls_ = 0;
};

TEST_F(DrainTest, ARecordedRunIsDoneWhenItHasEnded) {
  answers_ = {RunWith(v1::RUN_STATUS_RUNNING), RunWith(v1::RUN_STATUS_ENDED)};
  const DrainResult result = Run(milliseconds(60'000));
  EXPECT_TRUE(result.finished);
  EXPECT_EQ(calls_, 2);
}

TEST_F(DrainTest, ACheckedRunIsDoneWhenEverythingIsJudged) {
  v1::Run ended = RunWith(v1::RUN_STATUS_LOST);
  ended.mutable_check()->set_caught_up(true);
  v1::Run judged = ended;
  judged.mutable_check()->set_finished(true);
  answers_ = {ended, ended, judged};
  EXPECT_TRUE(Run(milliseconds(60'000)).finished);
  EXPECT_EQ(calls_, 3);
}

TEST_F(DrainTest, ACheckThatCannotRunIsNotWaitedFor) {
  v1::Run ended = RunWith(v1::RUN_STATUS_ENDED);
  ended.mutable_check()->set_error("no such set");
  answers_ = {ended};
  EXPECT_TRUE(Run(milliseconds(60'000)).finished);
  EXPECT_EQ(calls_, 1);
}

TEST_F(DrainTest, GivesUpAtTheTimeout) {
  answers_ = {RunWith(v1::RUN_STATUS_RUNNING)};
  const DrainResult result = Run(milliseconds(60'000));
  EXPECT_FALSE(result.finished);
  EXPECT_TRUE(result.run.has_value());
  EXPECT_EQ(now_, milliseconds(60'000));
}

TEST_F(DrainTest, NoTimeoutMeansOneLook) {
  answers_ = {RunWith(v1::RUN_STATUS_RUNNING)};
  EXPECT_FALSE(Run(milliseconds(0)).finished);
  EXPECT_EQ(calls_, 1);
}

TEST_F(DrainTest, TheUserMayStopTheWaiting) {
  answers_ = {RunWith(v1::RUN_STATUS_RUNNING)};
  interrupted_at_ = milliseconds(1000);
  EXPECT_FALSE(Run(milliseconds(60'000)).finished);
  EXPECT_EQ(now_, milliseconds(1000));
}

TEST_F(DrainTest, AnUnknownRunIsNotWaitedForLong) {
  answers_ = {absl::NotFoundError("no run")};
  const DrainResult result = Run(milliseconds(60'000));
  EXPECT_FALSE(result.run.has_value());
  EXPECT_TRUE(absl::IsNotFound(result.status));
  EXPECT_EQ(now_, milliseconds(3000));
}

TEST_F(DrainTest, AServerThatRestartsIsWaitedFor) {
  answers_ = {absl::UnavailableError("refused"),
              absl::UnavailableError("refused"), RunWith(v1::RUN_STATUS_ENDED)};
  EXPECT_TRUE(Run(milliseconds(60'000)).finished);
}

TEST_F(DrainTest, AServerThatWasNeverThereIsNot) {
  answers_ = {absl::UnavailableError("refused")};
  EXPECT_TRUE(absl::IsUnavailable(Run(milliseconds(60'000), false).status));
  EXPECT_EQ(calls_, 1);
}

TEST_F(DrainTest, KeepsTheLastStateOfAServerThatWent) {
  answers_ = {RunWith(v1::RUN_STATUS_RUNNING), absl::UnavailableError("gone")};
  const DrainResult result = Run(milliseconds(1000));
  EXPECT_TRUE(result.run.has_value());
  EXPECT_TRUE(absl::IsUnavailable(result.status));
}

}  // namespace
}  // namespace traincheck::ctl
