// `env` as a process.
#include <filesystem>
#include <fstream>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr char kPlan[] = R"({"format": 1})";

TEST(EnvCommandTest, PrintsWhatAShellEvaluates) {
  Process::Options options = Ctl({"env", "--experiment", "it's", "--collect"});
  options.environment.push_back("LD_PRELOAD=libm.so.6");
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 0) << result.err;
  Process::Options shell;
  shell.command = {"sh", "-c",
                   result.out +
                       "echo $LD_PRELOAD; echo $TRAINCHECK_EXPERIMENT "
                       "$TRAINCHECK_COLLECT $TRAINCHECK_SERVER"};
  EXPECT_THAT(RunProcess(shell).out,
              testing::MatchesRegex("/.*/ctl/testing/libtraincheck_agent.so:"
                                    "libm.so.6\nit's 1 unix:/.*sock\n"));
}

TEST(EnvCommandTest, NamesThePlanFromTheRootAndRefusesOneThatIsNotThere) {
  const std::string path = testing::TempDir() + "/plan.json";
  std::ofstream(path) << kPlan;
  const ProcessResult result = RunProcess(
      Ctl({"env", "--plan", std::filesystem::relative(path).string()}));
  EXPECT_EQ(result.code, 0) << result.err;
  EXPECT_THAT(result.out, HasSubstr("export TRAINCHECK_PLAN=/"));
  EXPECT_THAT(result.out, HasSubstr("/plan.json\n"));
  const ProcessResult refused =
      RunProcess(Ctl({"env", "--plan", "/nowhere/plan.json"}));
  EXPECT_EQ(refused.code, 2);
  EXPECT_THAT(refused.err, HasSubstr("/nowhere/plan.json"));
}

TEST(EnvCommandTest, TakesTheFileOfSettings) {
  const std::string path = testing::TempDir() + "/settings.yaml";
  std::ofstream(path) << "server: 127.0.0.1:99\nexperiment: e\ncheck: s\n";
  Process::Options options =
      Ctl({"env", "--config", std::filesystem::relative(path).string()});
  EXPECT_THAT(RunProcess(options).out,
              AllOf(HasSubstr("export TRAINCHECK_CONFIG=/"),
                    HasSubstr("export TRAINCHECK_SERVER=127.0.0.1:99\n"),
                    HasSubstr("export TRAINCHECK_EXPERIMENT=e\n"),
                    HasSubstr("export TRAINCHECK_CHECK=builtin,s\n")));
  options.command.push_back("--collect");
  options.environment.push_back("TRAINCHECK_SERVER=127.0.0.1:98");
  EXPECT_THAT(RunProcess(options).out,
              AllOf(HasSubstr("export TRAINCHECK_SERVER=127.0.0.1:98\n"),
                    HasSubstr("export TRAINCHECK_CHECK=''\n")));
}

TEST(EnvCommandTest, PrintsNothingWithWrongSettings) {
  const std::string path = testing::TempDir() + "/wrong.yaml";
  std::ofstream(path) << "sever: 127.0.0.1:99\n";
  const ProcessResult result = RunProcess(Ctl({"env", "--config", path}));
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("line 1: unknown setting sever"));
  const std::string plan = testing::TempDir() + "/wrong.json";
  std::ofstream(plan) << "{}";
  const ProcessResult planned = RunProcess(Ctl({"env", "--plan", plan}));
  EXPECT_EQ(planned.code, 2);
  EXPECT_EQ(planned.out, "");
  EXPECT_THAT(planned.err, HasSubstr("wrong.json: format: missing"));
}

TEST(EnvCommandTest, ThePlanOfTheSetIsThereForTheFirstCall) {
  FakeControl server;
  const std::string plan = R"({"format":1,"version":1})";
  server.Edit([&](FakeData& data) { data.set_plan.set_json(plan); });
  const std::string state = testing::TempDir() + "/state";
  const auto lines = [&](std::vector<std::string> arguments,
                         const std::string& address) {
    arguments.insert(arguments.begin(), {"--server", address, "env"});
    Process::Options options = Ctl(arguments);
    options.environment.push_back("XDG_STATE_HOME=" + state);
    return RunProcess(options);
  };
  const ProcessResult result = lines({"--check", "s1"}, server.address());
  Process::Options shell;
  shell.command = {"sh", "-c", result.out + "cat $TRAINCHECK_PLAN"};
  EXPECT_EQ(RunProcess(shell).out, plan) << result.out << result.err;
  EXPECT_THAT(result.out, HasSubstr(state + "/traincheck/plans/builtin,s1-"));
  // Whoever names a plan means it, and a run that is not checked has none.
  const std::string own = testing::TempDir() + "/own.json";
  std::ofstream(own) << kPlan;
  EXPECT_THAT(lines({"--check", "s1", "--plan", own}, server.address()).out,
              HasSubstr("TRAINCHECK_PLAN=" + own));
  EXPECT_THAT(lines({"--no-builtin"}, server.address()).out,
              Not(HasSubstr("TRAINCHECK_PLAN")));
  // Without a server the job starts all the same.
  const ProcessResult alone = lines({"--check", "s1"}, kNobody);
  EXPECT_EQ(alone.code, 0);
  EXPECT_THAT(alone.out, HasSubstr("TRAINCHECK_CHECK=builtin,s1"));
  EXPECT_THAT(alone.out, Not(HasSubstr("TRAINCHECK_PLAN")));
  EXPECT_THAT(alone.err, HasSubstr("could not fetch the capture plan of set"));
}

TEST(EnvCommandTest, PrintsNothingWithoutAnAgent) {
  Process::Options options = Ctl({"env"});
  options.environment.push_back("TRAINCHECK_AGENT_DIR=/nowhere");
  options.environment.erase(options.environment.begin());
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("/nowhere"));
}

}  // namespace
}  // namespace traincheck::ctl
