#include "base/shell_command.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fstream>
#include <sstream>

namespace traincheck {
namespace {

int WaitFor(pid_t pid) {
  int status = 0;
  EXPECT_EQ(waitpid(pid, &status, 0), pid);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -WTERMSIG(status);
}

std::string Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

TEST(ShellCommand, GivesItsVariablesBesideTheEnvironment) {
  const std::string out = testing::TempDir() + "/variables";
  setenv("OUT", out.c_str(), 1);
  const auto pid = StartShellCommand(
      {"printf '%s|%s' \"$WHAT\" \"$HOME\" > \"$OUT\"; exit 3",
       {{"WHAT", "a \"b\" $(touch /nowhere) `c`; d"}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(WaitFor(*pid), 3);
  EXPECT_EQ(Read(out), "a \"b\" $(touch /nowhere) `c`; d|" +
                           std::string(getenv("HOME") ? getenv("HOME") : ""));
}

TEST(ShellCommand, ValuesArePrintableAndOfLimitedSize) {
  const std::string out = testing::TempDir() + "/printable";
  setenv("OUT", out.c_str(), 1);
  const auto pid = StartShellCommand(
      {"printf '%s' \"$WHAT$LONG\" > \"$OUT\"",
       {{"WHAT", "a\x1b[2J\nb"}, {"LONG", std::string(1'000'000, 'x')}}});
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(WaitFor(*pid), 0);
  EXPECT_EQ(Read(out),
            "a\\u{1b}[2J\\u{a}b" + std::string(kMaxVariableBytes, 'x'));
}

TEST(ShellCommand, HasAGroupOfItsOwnNoFilesOfOursAndTakesSignals) {
  int files[2];
  ASSERT_EQ(pipe(files), 0);
  signal(SIGTERM, SIG_IGN);
  sigset_t all;
  sigfillset(&all);
  sigset_t before;
  sigprocmask(SIG_BLOCK, &all, &before);
  const auto pid = StartShellCommand({"exec sleep 1000", {}});
  sigprocmask(SIG_SETMASK, &before, nullptr);
  signal(SIGTERM, SIG_DFL);
  ASSERT_TRUE(pid.ok()) << pid.status();
  EXPECT_EQ(getpgid(*pid), *pid);
  close(files[1]);
  char byte = 0;
  EXPECT_EQ(read(files[0], &byte, 1), 0);  // nobody else has the other end
  close(files[0]);
  kill(-*pid, SIGTERM);
  EXPECT_EQ(WaitFor(*pid), -SIGTERM);
}

}  // namespace
}  // namespace traincheck
