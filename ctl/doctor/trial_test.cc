#include "ctl/doctor/trial.h"

#include <gtest/gtest.h>

#include <ctime>

namespace traincheck::ctl {
namespace {

TEST(RunTrial, KeepsWhatItSays) {
  const auto result =
      RunTrial({"sh", "-c", "echo $WORD; echo bad >&2; exit 3"},
               {"WORD=good", "PATH=/usr/bin:/bin"}, std::chrono::seconds(60));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 3);
  EXPECT_EQ(result->out, "good\n");
  EXPECT_EQ(result->err, "bad\n");
}

TEST(RunTrial, TellsDeathBySignal) {
  const auto result =
      RunTrial({"/bin/sh", "-c", "kill -9 $$"}, {}, std::chrono::seconds(60));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 128 + 9);
}

// A relay keeps stderr beyond the end of the program that started it.
TEST(RunTrial, DoesNotWaitForWhoKeepsStderr) {
  const auto result =
      RunTrial({"/bin/sh", "-c", "sleep 100 >/dev/null & exit 0"},
               {"PATH=/usr/bin:/bin"}, std::chrono::seconds(50));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->code, 0);
}

// A closed pipe is always ready: whoever goes on asking it burns a processor.
TEST(RunTrial, SleepsWhereStderrIsClosed) {
  const std::clock_t before = std::clock();
  const auto result =
      RunTrial({"/bin/sh", "-c", "exec 2>&-; sleep 3; echo end"},
               {"PATH=/usr/bin:/bin"}, std::chrono::seconds(50));
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->out, "end\n");
  // Of three seconds.
  EXPECT_LT(std::clock() - before, CLOCKS_PER_SEC);
}

TEST(RunTrial, EndsWhatDoesNotEnd) {
  const auto result =
      RunTrial({"/bin/sleep", "1000"}, {}, std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsDeadlineExceeded(result.status())) << result.status();
}

TEST(RunTrial, NamesWhatIsNotThere) {
  const auto result =
      RunTrial({"/nonexistent/python"}, {}, std::chrono::seconds(1));
  EXPECT_TRUE(absl::IsNotFound(result.status()));
  EXPECT_NE(result.status().message().find("/nonexistent/python"),
            std::string::npos);
}

}  // namespace
}  // namespace traincheck::ctl
