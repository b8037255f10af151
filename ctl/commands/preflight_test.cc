// `preflight` as a process, as far as no training runs.
#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

ProcessResult RunPreflight(const std::vector<std::string>& options) {
  std::vector<std::string> arguments = {"preflight"};
  arguments.insert(arguments.end(), options.begin(), options.end());
  return RunProcess(Ctl(arguments));
}

TEST(PreflightCommandTest, WrongWordsAreSaidAndNothingRuns) {
  const std::vector<std::pair<std::vector<std::string>, std::string>> all = {
      {{}, "the training's command line goes after \"--\""},
      {{"--"}, "the training's command line goes after \"--\""},
      {{"echo", "trained"},
       "preflight: the training's command line goes after \"--\": "
       "traincheckctl preflight -- echo trained"},
      {{"--steps", "0", "--", "echo", "trained"}, "--steps"},
      {{"--steps", "many", "--", "echo", "trained"}, "--steps"},
      {{"--min-coverage", "101", "--", "echo", "trained"}, "--min-coverage"},
      {{"--format", "html", "--", "echo", "trained"}, "--format"},
      {{"--keep-gong", "--", "echo", "trained"}, "mean --keep-going?"}};
  for (const auto& [options, message] : all) {
    const ProcessResult result = RunPreflight(options);
    EXPECT_EQ(result.code, 2) << message;
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr(message));
  }
}

TEST(PreflightCommandTest, WrongSettingsStopBeforeTheStart) {
  for (const char* variable :
       {"TRAINCHECK_STOP_AFTER=0", "TRAINCHECK_BUDGET=abc"}) {
    Process::Options options = Ctl({"preflight", "--", "echo", "trained"});
    options.environment.push_back(variable);
    const ProcessResult result = RunProcess(options);
    EXPECT_EQ(result.code, 2);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("TRAINCHECK_"));
  }
}

TEST(PreflightCommandTest, ANamedServerHasToAnswer) {
  const ProcessResult result =
      RunPreflight({"--server", kNobody, "--", "echo", "trained"});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr(kNobody));
}

// In the folder of these tests there is none.
TEST(PreflightCommandTest, AnInstallationWithoutADaemonIsNamed) {
  const ProcessResult result = RunPreflight({"--", "echo", "trained"});
  EXPECT_EQ(result.code, 4);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("traincheckd is not in "));
}

class PreflightWithServerTest : public CommandsTest {};

TEST_F(PreflightWithServerTest, AServerWithoutTheRulesCannotCheck) {
  const ProcessResult result = Run({"preflight", "--", "echo", "trained"});
  EXPECT_EQ(result.code, 11);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("has no built-in rules"));
}

// The run never comes; what it prints is no data.
TEST_F(PreflightWithServerTest, ATrainingThatRecordsNothing) {
  server_.Edit([](FakeData& data) {
    data.sets.emplace_back().mutable_summary()->set_name("builtin");
    data.sets.back().mutable_summary()->set_version(1);
    data.set_plan.set_json("{}");
  });
  const std::string script =
      "echo trained $TRAINCHECK_STOP_AFTER $TRAINCHECK_BUDGET "
      "$TRAINCHECK_CHECK";
  const ProcessResult result = Run({"preflight", "--steps", "7", "--format",
                                    "json", "--", "sh", "-c", script});
  EXPECT_EQ(result.code, 11) << result.err;
  EXPECT_THAT(result.err, HasSubstr("trained 7 off builtin\n"));
  EXPECT_THAT(result.err, HasSubstr("preflight asks for one at least"));
  const Json json = Json::parse(result.out, nullptr, false);
  ASSERT_FALSE(json.is_discarded()) << result.out;
  EXPECT_EQ(json["findings"], Json::array());
  const ProcessResult failed = Run({"preflight", "--keep-going", "--", "sh",
                                    "-c", "exit 3$TRAINCHECK_STOP_AFTER"});
  EXPECT_EQ(failed.code, 3);
  EXPECT_THAT(failed.err, HasSubstr("failed by itself: exit code 3"));
}

}  // namespace
}  // namespace traincheck::ctl
