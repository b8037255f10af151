// What is different where a person looks at a terminal.
#include <pty.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr unsigned short kColumns = 70;
constexpr char kRed[] = "\x1b[1;31m";

// All that a command writes on a terminal of that width.
std::string OnTerminal(const std::vector<std::string>& arguments,
                       const char* no_color = "") {
  winsize size = {};
  size.ws_row = 24;
  size.ws_col = kColumns;
  int terminal = -1;
  const pid_t pid = forkpty(&terminal, nullptr, nullptr, &size);
  if (pid == 0) {
    setenv("TERM", "xterm", 1);
    setenv("NO_COLOR", no_color, 1);
    std::vector<char*> argv;
    const Process::Options options = Ctl(arguments);
    for (const std::string& word : options.command) {
      argv.push_back(const_cast<char*>(word.c_str()));
    }
    argv.push_back(nullptr);
    std::vector<std::string> environment =
        CleanEnvironment(options.environment);
    std::vector<char*> envp;
    for (std::string& entry : environment) envp.push_back(entry.data());
    envp.push_back(nullptr);
    execve(argv[0], argv.data(), envp.data());
    _exit(99);
  }
  std::string shown;
  char buffer[4096];
  for (ssize_t n; (n = read(terminal, buffer, sizeof buffer)) > 0;) {
    shown.append(buffer, static_cast<size_t>(n));
  }
  close(terminal);
  waitpid(pid, nullptr, 0);
  return shown;
}

TEST_F(CommandsTest, TablesAreFoldedOnATerminalOnly) {
  server_.Edit([](FakeData& data) {
    std::string text;
    for (int i = 0; i < 30; ++i) text += "word ";
    data.sets[0].mutable_invariants(0)->set_text(text);
  });
  const std::vector<std::string> list = {"--server", server_.address(),
                                         "invariants", "list", "s1"};
  const std::string shown = OnTerminal(list);
  EXPECT_THAT(shown, HasSubstr("word"));
  size_t longest = 0;
  for (size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
    end = shown.find('\r', at);
    longest = std::max(longest, std::min(end, shown.size()) - at);
  }
  EXPECT_LE(longest, kColumns + 1) << shown;  // with the line feed before
  EXPECT_THAT(RunProcess(Ctl(list)).out, HasSubstr("word word word word word "
                                                   "word word word word word "
                                                   "word word word word"));
}

TEST(TerminalTest, AlarmsAreRedUnlessNobodyWantsColours) {
  const std::vector<std::string> run = {"--server", kNobody, "run", "--check",
                                        "s",        "--",    "true"};
  const std::string alarm = std::string(kRed) + "NOTHING CHECKED\x1b[0m";
  EXPECT_THAT(OnTerminal(run), HasSubstr(alarm));
  const std::string plain = OnTerminal(run, "1");
  EXPECT_THAT(plain, HasSubstr("NOTHING CHECKED"));
  EXPECT_THAT(plain, Not(HasSubstr("\x1b[")));
  EXPECT_THAT(RunProcess(Ctl(run)).err, Not(HasSubstr("\x1b[")));
}

}  // namespace
}  // namespace traincheck::ctl
