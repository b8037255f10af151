// `check` as a process.
#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

TEST_F(CommandsTest, CheckIsAGateThatDoesNotPassOnNothing) {
  const std::vector<std::string> check = {"check", "--run", "r1", "--set",
                                          "s1"};
  std::vector<std::string> gate = check;
  gate.push_back("--fail-on-violation");
  server_.Edit([](FakeData& data) {
    data.runs[0].set_experiment("pkg.train");
    data.sets[0].mutable_invariants(0)->set_json(
        R"({"experiments": ["mnist"]})");
    data.check_result.mutable_coverage()->set_finished(true);
    data.check_result.mutable_coverage()->set_not_applied(1);
  });
  EXPECT_EQ(Run(check).code, 0);
  ProcessResult result = Run(gate);
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.out, testing::StartsWith("NOTHING CHECKED"));
  EXPECT_THAT(result.err, HasSubstr("this run is pkg.train: give --experiment "
                                    "mnist when it is recorded\n"));
  EXPECT_THAT(result.err, HasSubstr("too little was checked: 0 of 0"));
  server_.Edit([](FakeData& data) {
    data.check_result.mutable_coverage()->set_decided(1);
    data.check_result.mutable_coverage()->set_total(2);
    data.check_result.mutable_coverage()->set_not_applied(0);
  });
  result = Run(gate);
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "checking r1\n");
  gate.insert(gate.end(), {"--min-coverage", "51"});
  EXPECT_EQ(Run(gate).code, 11);
  server_.Edit(
      [](FakeData& data) { data.check_result.add_violations()->set_id("v1"); });
  EXPECT_EQ(Run(gate).code, 10);
}

TEST_F(CommandsTest, CheckSaysHowMuchOfARuleWasDecided) {
  server_.Edit([](FakeData& data) {
    v1::InvariantVerdict* partly = data.check_result.add_verdicts();
    partly->set_verdict(v1::VERDICT_PARTLY);
    partly->set_reason("records are missing");
    partly->set_decided_windows(3);
    partly->set_unknown_windows(1);
    data.check_result.add_verdicts()->set_verdict(v1::VERDICT_UNKNOWN);
  });
  const ProcessResult result = Run({"-o", "json", "check", "--run", "r1"});
  ASSERT_EQ(result.code, 0) << result.err;
  const Json verdicts = Json::parse(result.out)["verdicts"];
  EXPECT_EQ(verdicts[0]["verdict"], "partly");
  EXPECT_EQ(verdicts[0]["share"], 0.75);
  EXPECT_EQ(verdicts[1]["verdict"], "unknown");
  EXPECT_TRUE(verdicts[1]["share"].is_null());
}

}  // namespace
}  // namespace traincheck::ctl
