// Signals around `traincheckctl run`.
#include <pty.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ctl/testing/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

// Exits with 40 + the number of times that it was interrupted.
constexpr char kCountSignals[] = "ctl/testing/count_signals";

Process::Options Counting() {
  return Ctl({"--server", "127.0.0.1:9", "run", "--", kCountSignals});
}

TEST(RunSignalsTest, ASignalToUsAloneReachesTheTraining) {
  for (int number : {SIGTERM, SIGHUP, SIGINT}) {
    Process run(Counting());
    ASSERT_TRUE(run.WaitForOut("started"));
    kill(run.pid(), number);
    EXPECT_EQ(run.Wait().code, 41) << number;
  }
}

TEST(RunSignalsTest, ATrainingThatDiesOfItGivesTheShellsCode) {
  Process run(Ctl({"--server", "127.0.0.1:9", "run", "--", "sh", "-c",
                   "echo started; exec sleep 60"}));
  ASSERT_TRUE(run.WaitForOut("started"));
  kill(run.pid(), SIGTERM);
  EXPECT_EQ(run.Wait().code, 128 + SIGTERM);
}

// Starts a counting training under a terminal whose session traincheckctl
// leads, and waits until it counts.
pid_t StartInTerminal(const char* argument, int* terminal) {
  const pid_t pid = forkpty(terminal, nullptr, nullptr, nullptr);
  if (pid == 0) {
    std::vector<std::string> environment =
        CleanEnvironment({"TRAINCHECK_AGENT_DIR=ctl/testing"});
    std::vector<char*> envp;
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    execle("ctl/traincheckctl", "traincheckctl", "--server", "127.0.0.1:9",
           "run", "--", kCountSignals, argument, nullptr, envp.data());
    _exit(99);
  }
  std::string shown;
  char buffer[256];
  while (shown.find("started") == std::string::npos) {
    const ssize_t n = read(*terminal, buffer, sizeof(buffer));
    if (n <= 0) break;
    shown.append(buffer, static_cast<size_t>(n));
  }
  EXPECT_NE(shown.find("started"), std::string::npos) << shown;
  return pid;
}

int ExitCodeOf(pid_t pid) {
  int wait_status = 0;
  EXPECT_EQ(waitpid(pid, &wait_status, 0), pid);
  EXPECT_TRUE(WIFEXITED(wait_status));
  return WEXITSTATUS(wait_status);
}

// Runs a counting training under a terminal, types Ctrl-C and returns the exit
// code.
int InterruptFromTerminal(const char* argument) {
  int terminal = -1;
  const pid_t pid = StartInTerminal(argument, &terminal);
  EXPECT_EQ(write(terminal, "\x03", 1), 1);
  // Until the terminal has no user any more.
  char buffer[256];
  while (read(terminal, buffer, sizeof(buffer)) > 0) {
  }
  const int code = ExitCodeOf(pid);
  close(terminal);
  return code;
}

TEST(RunSignalsTest, ATerminalsInterruptReachesTheTrainingByItself) {
  EXPECT_EQ(InterruptFromTerminal(nullptr), 41);
}

// Forwarded as well it would be a second one, which makes Python give up its
// clean end. This training gets none from the terminal.
TEST(RunSignalsTest, ATerminalsInterruptIsNotForwarded) {
  EXPECT_EQ(InterruptFromTerminal("own-group"), 40);
}

// The kernel sends the hang-up of a terminal to the leader of its session
// alone, and this training is not the leader: nobody else would end it.
TEST(RunSignalsTest, ATerminalThatHangsUpEndsTheTraining) {
  int terminal = -1;
  const pid_t pid = StartInTerminal(nullptr, &terminal);
  close(terminal);
  EXPECT_EQ(ExitCodeOf(pid), 41);
}

TEST(RunSignalsTest, IgnoredSignalsStayIgnored) {
  Process::Options options = Ctl({"--server", "127.0.0.1:9", "run", "--", "sh",
                                  "-c", "kill -HUP $$; exit 6"});
  options.command.insert(options.command.begin(), "nohup");
  EXPECT_EQ(RunProcess(options).code, 6);
}

}  // namespace
}  // namespace traincheck::ctl
