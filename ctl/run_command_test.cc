// `traincheckctl run` as a process: what the training gets, what the user is
// told and which exit code comes out.
#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "ctl/testing/fake_control.h"
#include "ctl/testing/process.h"
#include "ctl/testing/run_shell.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST(RunCommandTest, PassesTheExitCodeOn) {
  EXPECT_EQ(RunShell({}, "exit 0").code, 0);
  EXPECT_EQ(RunShell({}, "exit 7").code, 7);
  EXPECT_EQ(RunShell({}, "exit 255").code, 255);
  EXPECT_EQ(RunShell({}, "kill -KILL $$").code, 128 + 9);
  EXPECT_EQ(RunShell({}, "kill -TERM $$").code, 128 + 15);
}

// As with 2> >(tee log) when tee dies: the training must not go on unwatched.
TEST(RunCommandTest, AStderrThatNobodyReadsAnyMoreEndsNothing) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  ASSERT_LT(ends[1], 10);  // or the shell would take it for a word
  Process::Options options = Ctl(
      {"--server", kNobody, "run", "--", "sh", "-c", "echo trained; exit 5"});
  const std::string script = "exec \"$0\" \"$@\" 2>&" + std::to_string(ends[1]);
  options.command.insert(options.command.begin(), {"sh", "-c", script});
  const ProcessResult result = RunProcess(options);
  close(ends[1]);
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.out, "trained\n");
}

TEST(RunCommandTest, CommandsThatCannotRun) {
  const ProcessResult missing =
      RunProcess(Ctl({"run", "--", "/no/such/program"}));
  EXPECT_EQ(missing.code, 127);
  EXPECT_THAT(missing.err, HasSubstr("/no/such/program"));
  const ProcessResult folder = RunProcess(Ctl({"run", "--", "/"}));
  EXPECT_EQ(folder.code, 126);
  EXPECT_THAT(folder.err, HasSubstr("cannot run \"/\""));
}

TEST(RunCommandTest, StandardStreamsAreTheTrainings) {
  Process::Options options = Ctl({"--server", kNobody, "run", "--", "sh", "-c",
                                  "cat; printf 'no newline'; echo err >&2"});
  options.stdin_text = std::string("a\0\xff\n", 4);
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.out, options.stdin_text + "no newline");
  EXPECT_THAT(result.err, HasSubstr("err\n"));
}

TEST(RunCommandTest, ArgumentsArriveUntouched) {
  const ProcessResult result = RunProcess(
      Ctl({"--server", kNobody, "run", "--", "printf", "%s|", "[1,2]", "--",
           "-o", "json", "", "--help", "a b", "runs"}));
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "[1,2]|--|-o|json||--help|a b|runs|");
}

TEST(RunCommandTest, FilesAndSignalsAreAsWithoutUs) {
  FakeControl server;  // So that there are connections to leak.
  // Directly: a shell in between puts the mask of its children in order.
  const std::vector<std::vector<std::string>> commands = {
      {"ls", "/proc/self/fd"},
      {"grep", "-E", "Sig(Blk|Ign)", "/proc/self/status"}};
  for (const auto& command : commands) {
    Process::Options plain;
    plain.command = command;
    std::vector<std::string> run = {
        "--server", server.address(), "run", "--drain-timeout", "0", "--"};
    run.insert(run.end(), command.begin(), command.end());
    const std::string out = RunProcess(Ctl(run)).out;
    EXPECT_NE(out, "");
    EXPECT_EQ(out, RunProcess(plain).out);
  }
}

TEST(RunCommandTest, TheTrainingIsInOurProcessGroup) {
  Process::Options plain;
  const std::string script = "cut -d' ' -f5 /proc/$$/stat";
  plain.command = {"sh", "-c", script};
  EXPECT_EQ(RunShell({}, script).out, RunProcess(plain).out);
}

TEST(RunCommandTest, SetsTheAgentsEnvironment) {
  Process::Options options =
      Ctl({"--server", kNobody, "run", "--experiment", "my exp", "--check", "s",
           "--", "sh", "-c", "env | grep -E '^(TRAINCHECK_|LD_PRELOAD)'"});
  options.environment.push_back("TRAINCHECK_COLLECT=1");
  options.environment.push_back("LD_PRELOAD=libm.so.6");
  const std::string out = RunProcess(options).out;
  EXPECT_THAT(out, testing::ContainsRegex("LD_PRELOAD=/[^ ]*/ctl/testing/"
                                          "libtraincheck_agent.so:libm.so.6"));
  EXPECT_THAT(out, HasSubstr("TRAINCHECK_SERVER=127.0.0.1:9\n"));
  EXPECT_THAT(out, HasSubstr("TRAINCHECK_EXPERIMENT=my exp\n"));
  EXPECT_THAT(out, HasSubstr("TRAINCHECK_CHECK=builtin,s\n"));
  EXPECT_THAT(out, Not(HasSubstr("TRAINCHECK_COLLECT")));
  EXPECT_THAT(out,
              testing::ContainsRegex(
                  "TRAINCHECK_RUN=my_exp-[0-9]{8}-[0-9]{6}-[0-9a-f]{12}\n"));
}

TEST(RunCommandTest, CollectIsPassedOn) {
  EXPECT_EQ(RunShell({"--collect", "--run", "r7"},
                     "echo $TRAINCHECK_COLLECT $TRAINCHECK_RUN")
                .out,
            "1 r7\n");
}

TEST(RunCommandTest, WithoutAServerItWarnsOnceAndTrains) {
  const ProcessResult result = RunShell({"--check", "s"}, "echo trained");
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_EQ(Count(result.err, "traincheckd answers"), 1) << result.err;
  EXPECT_THAT(result.err, HasSubstr(kNobody));
  EXPECT_THAT(result.err, HasSubstr("NOTHING CHECKED"));
}

// Accepts connections, by the backlog, and never answers.
TEST(RunCommandTest, AServerThatHangsDoesNotStopTheTraining) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof(address);
  auto* const generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, generic, size), 0);
  ASSERT_EQ(listen(listener, 8), 0);
  ASSERT_EQ(getsockname(listener, generic, &size), 0);
  const std::string server =
      "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
  const ProcessResult result =
      RunShell({"--check", "s"}, "echo trained; exit 3", server);
  close(listener);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_EQ(Count(result.err, "traincheckd answers"), 1) << result.err;
}

TEST(RunCommandTest, RequireServerDoesNotStartWithoutOne) {
  const ProcessResult result = RunShell({"--require-server"}, "echo trained");
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(kNobody));
}

// Neither without a server nor where the agent cannot be preloaded.
TEST(RunCommandTest, AGateDoesNotPassOnNothing) {
  for (const char* option : {"--fail-on-violation", "--min-coverage=1"}) {
    EXPECT_EQ(RunShell({"--check", "s", option}, "exit 0").code, 11);
    EXPECT_EQ(RunShell({"--check", "s", option}, "exit 3").code, 3);
  }
  Process::Options options = Ctl({"--server", kNobody, "run", "--check", "s",
                                  "--fail-on-violation", "--", "true"});
  options.environment = {"TRAINCHECK_AGENT_DIR=/nowhere"};
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.err, HasSubstr("too little was checked: 0 of 0"));
}

TEST(RunCommandTest, AMissingLibraryIsOneWarning) {
  Process::Options options = Ctl({"--server", kNobody, "run", "--", "sh", "-c",
                                  "echo trained $LD_PRELOAD; exit 5"});
  options.environment = {"TRAINCHECK_AGENT_DIR=/nowhere"};
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 5);
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_EQ(Count(result.err, "unmonitored"), 1) << result.err;
}

// The agent would stay off, and hours later nothing would have been checked.
TEST(RunCommandTest, WrongSettingsStopBeforeTheStart) {
  const std::string plan = std::string(getenv("TEST_TMPDIR")) + "/wrong.json";
  std::ofstream(plan) << "import torch\n";
  const std::vector<std::pair<std::string, std::string>> all = {
      {"TRAINCHECK_GRASE=1", "unknown setting TRAINCHECK_GRASE"},
      {"TRAINCHECK_BUDGET=abc", "TRAINCHECK_BUDGET is \"abc\": write"},
      {"TRAINCHECK_PLAN=" + plan, plan + ", line 1, column 1: "}};
  for (const auto& [variable, message] : all) {
    Process::Options options =
        Ctl({"--server", kNobody, "run", "--", "echo", "trained"});
    options.environment.push_back(variable);
    const ProcessResult result = RunProcess(options);
    EXPECT_EQ(result.code, 2) << variable;
    EXPECT_EQ(result.out, "") << variable;
    EXPECT_THAT(result.err,
                testing::StartsWith("traincheckctl: run: the training was not "
                                    "started: "));
    EXPECT_THAT(result.err, HasSubstr(message));
  }
  const ProcessResult result = RunShell({"--plan", plan}, "echo trained");
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(plan));
}

TEST(RunCommandTest, ALibraryThatTheLoaderRefusesIsNotPreloaded) {
  const std::string folder = std::string(getenv("TEST_TMPDIR")) + "/broken";
  std::filesystem::create_directory(folder);
  std::ofstream(folder + "/libtraincheck_agent.so") << "no library";
  Process::Options options = Ctl({"--server", kNobody, "run", "--", "sh", "-c",
                                  "echo trained $LD_PRELOAD"});
  options.environment = {"TRAINCHECK_AGENT_DIR=" + folder};
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "trained\n");
  EXPECT_THAT(result.err, HasSubstr("unmonitored"));
  EXPECT_EQ(Count(result.err, "ld.so"), 1) << result.err;
}

}  // namespace
}  // namespace traincheck::ctl
