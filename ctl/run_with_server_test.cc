// `traincheckctl run` as a process, with a server that answers: what is
// checked, what appears while it trains, and the verdict.
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>

#include "ctl/testing/fake_control.h"
#include "ctl/testing/process.h"
#include "ctl/testing/run_shell.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;

class RunWithServerTest : public testing::Test {
 protected:
  RunWithServerTest() {
    server_.Edit([](FakeData& data) {
      v1::SetDetail set;
      set.mutable_summary()->set_name("s1");
      data.sets.push_back(set);
    });
    folder_ = std::string(getenv("TEST_TMPDIR")) + "/" +
              testing::UnitTest::GetInstance()->current_test_info()->name();
    std::filesystem::create_directory(folder_);
    setenv("XDG_STATE_HOME", folder_.c_str(), 1);
  }

  // A training that says "started" and goes on until Release.
  Process::Options Training(const std::vector<std::string>& options,
                            const std::string& end) {
    std::vector<std::string> arguments = {"--server", server_.address(), "run",
                                          "--run", "r1"};
    arguments.insert(arguments.end(), options.begin(), options.end());
    arguments.insert(arguments.end(),
                     {"--", "sh", "-c",
                      "echo started; while [ ! -e " + folder_ +
                          "/release ]; do sleep 0.02; done; " + end});
    return Ctl(arguments);
  }

  void Release() { std::ofstream(folder_ + "/release") << ""; }

  // The run as the server sees it.
  void ShowRun(v1::RunStatus status, bool finished, int violations) {
    server_.Edit([&](FakeData& data) {
      v1::Run run;
      run.set_id("r1");
      run.set_status(status);
      run.set_records(100);
      run.mutable_check()->set_total(4);
      run.mutable_check()->set_decided(3);
      run.mutable_check()->set_finished(finished);
      run.mutable_check()->set_violated(violations);
      data.runs = {run};
      data.violations.clear();
      for (int i = 0; i < violations; ++i) {
        v1::Violation violation;
        violation.set_id("v" + std::to_string(i));
        violation.set_run("r1");
        violation.set_text("rule " + std::to_string(i));
        data.violations.push_back(violation);
      }
    });
  }

  FakeControl server_;
  std::string folder_;
};

TEST_F(RunWithServerTest, AnUnknownSetStopsBeforeTheStart) {
  const ProcessResult result =
      RunShell({"--check", "s9"}, "echo trained", server_.address());
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("no set \"s9\"; it has s1"));
}

TEST_F(RunWithServerTest, AVersionOfASetMayBeNamed) {
  server_.Edit([](FakeData& data) {
    data.sets[0].mutable_summary()->set_version(2);
    data.set_plan.set_json("{}");
  });
  const auto check = [this](const std::string& set) {
    return RunShell({"--check", set, "--drain-timeout", "0"},
                    "echo $TRAINCHECK_CHECK", server_.address());
  };
  EXPECT_EQ(check("s1@1").out, "s1@1\n");
  EXPECT_EQ(check("s1@2").out, "s1@2\n");
  const ProcessResult newer = check("s1@3");
  EXPECT_EQ(newer.code, 2);
  EXPECT_THAT(newer.err, HasSubstr("no version 3 of set \"s1\"; its newest "
                                   "is 2"));
  EXPECT_EQ(check("s1@x").code, 2);
  EXPECT_EQ(check("s1@0").code, 2);
}

TEST_F(RunWithServerTest, TheBuiltInRulesAreCheckedUnlessSomebodySaysNo) {
  const auto sets = [this](const std::vector<std::string>& options) {
    std::vector<std::string> all = {"--drain-timeout", "0"};
    all.insert(all.end(), options.begin(), options.end());
    return RunShell(all, "echo $TRAINCHECK_CHECK", server_.address());
  };
  // A server that is older has none, and says so once.
  const ProcessResult older = sets({});
  EXPECT_EQ(older.out, "\n");
  EXPECT_EQ(Count(older.err, "has no built-in rules"), 1) << older.err;
  EXPECT_EQ(sets({"--check", "s1"}).out, "s1\n");
  server_.Edit([](FakeData& data) {
    data.set_plan.set_json("{}");
    data.sets.emplace_back().mutable_summary()->set_name("builtin");
    data.sets.back().mutable_summary()->set_version(1);
  });
  EXPECT_EQ(sets({}).out, "builtin\n");
  EXPECT_EQ(sets({"--check", "s1"}).out, "builtin,s1\n");
  EXPECT_EQ(sets({"--check", "s1,builtin@1"}).out, "s1,builtin@1\n");
  EXPECT_EQ(sets({"--no-builtin"}).out, "\n");
  // As after eval "$(traincheckctl env)".
  setenv("TRAINCHECK_CHECK", "builtin", 1);
  EXPECT_EQ(sets({"--no-builtin"}).out, "\n");
  unsetenv("TRAINCHECK_CHECK");
  EXPECT_EQ(sets({"--no-builtin", "--check", "s1"}).out, "s1\n");
  EXPECT_EQ(sets({"--no-builtin", "--check", "s1,builtin"}).out, "s1\n");
  EXPECT_EQ(sets({"--collect"}).out, "\n");
  const std::string plan = folder_ + "/plan.json";
  std::ofstream(plan) << R"({"format": 1, "version": 1})";
  EXPECT_EQ(sets({"--plan", plan}).out, "\n");
  EXPECT_EQ(sets({"--plan", plan, "--check", "s1"}).out, "builtin,s1\n");
  for (const auto& [variable, expected] : std::map<std::string, std::string>{
           {"TRAINCHECK_BUILTIN=0", "\n"},
           {"TRAINCHECK_COLLECT=1", "\n"},
           {"TRAINCHECK_CHECK=builtin", "builtin\n"},
           {"TRAINCHECK_CHECK=s1", "builtin,s1\n"}}) {
    Process::Options options =
        Ctl({"--server", server_.address(), "run", "--drain-timeout", "0", "--",
             "sh", "-c", "echo $TRAINCHECK_CHECK"});
    options.environment.push_back(variable);
    EXPECT_EQ(RunProcess(options).out, expected) << variable;
  }
}

TEST_F(RunWithServerTest, ARunIdThatExistsStopsBeforeTheStart) {
  ShowRun(v1::RUN_STATUS_ENDED, true, 0);
  const ProcessResult result =
      RunShell({"--run", "r1"}, "echo trained", server_.address());
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("\"r1\" exists already"));
}

TEST_F(RunWithServerTest, AnIdThatWasMadeUpMustBeNewToo) {
  server_.Edit([](FakeData& data) { data.every_run_exists = true; });
  const ProcessResult result = RunShell({}, "echo trained", server_.address());
  EXPECT_EQ(result.code, 2);
  EXPECT_EQ(result.out, "");
  EXPECT_THAT(result.err, HasSubstr("exists already"));
}

TEST_F(RunWithServerTest, ThePlanOfTheSetIsThereForTheFirstCall) {
  const std::string plan = R"({"format":1,"version":1})";
  server_.Edit([&](FakeData& data) { data.set_plan.set_json(plan); });
  const ProcessResult result =
      RunShell({"--check", "s1", "--drain-timeout", "0"},
               "cat $TRAINCHECK_PLAN", server_.address());
  EXPECT_EQ(result.out, plan) << result.err;
}

TEST_F(RunWithServerTest, WithoutAHomeThePlanIsInTheTemporaryFolder) {
  const std::string plan = R"({"format":1,"version":1})";
  server_.Edit([&](FakeData& data) { data.set_plan.set_json(plan); });
  const char* const home = getenv("HOME");
  const std::string before = home == nullptr ? "" : home;
  setenv("HOME", "", 1);
  setenv("XDG_STATE_HOME", "", 1);
  setenv("TMPDIR", folder_.c_str(), 1);
  const auto run = [&] {
    return RunShell({"--check", "s1", "--drain-timeout", "0"},
                    "echo $TRAINCHECK_PLAN; cat $TRAINCHECK_PLAN",
                    server_.address());
  };
  const ProcessResult good = run();
  EXPECT_THAT(good.out, HasSubstr(folder_ + "/traincheck-"));
  EXPECT_THAT(good.out, HasSubstr(plan));
  // Others may look into it, or have made it: not used.
  const std::string ours = folder_ + "/traincheck-" + std::to_string(geteuid());
  std::filesystem::permissions(ours, std::filesystem::perms::all);
  const ProcessResult open = run();
  EXPECT_THAT(open.err, HasSubstr("is not a folder of this user alone"));
  setenv("HOME", before.c_str(), 1);
  unsetenv("TMPDIR");
}

TEST_F(RunWithServerTest, ViolationsAppearWhileItTrains) {
  Process run(Training({"--check", "s1"}, "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_RUNNING, false, 1);
  EXPECT_TRUE(run.WaitForErr("traincheck: VIOLATION"));
  EXPECT_TRUE(run.WaitForErr("rule 0"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 2);
  Release();
  const ProcessResult result = run.Wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "started\n");
  // Each once, the late one too, and the verdict after them.
  EXPECT_EQ(Count(result.err, "VIOLATION"), 2) << result.err;
  EXPECT_THAT(result.err, HasSubstr("against s1: 2 incidents\n"));
  EXPECT_THAT(result.err, HasSubstr("coverage 3/4"));
  EXPECT_LT(result.err.rfind("VIOLATION"), result.err.find("coverage"));
  EXPECT_THAT(result.err, HasSubstr("--server " + server_.address() +
                                    " violations show v0"));
}

TEST_F(RunWithServerTest, ACommandIsStartedForEachAlertBesideTheTraining) {
  const std::string calls = folder_ + "/calls";
  Process run(Training({"--check", "s1", "--on-alert",
                        "echo printed; echo $TRAINCHECK_ALERT_RUN "
                        "$TRAINCHECK_ALERT_INCIDENT: $TRAINCHECK_ALERT_HEADLINE"
                        " >> " +
                            calls + "; exit 7"},
                       "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_RUNNING, false, 1);
  EXPECT_TRUE(run.WaitForErr("printed"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 1);
  Release();
  const ProcessResult result = run.Wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.out, "started\n");
  std::ifstream file(calls);
  const std::string content{std::istreambuf_iterator<char>(file), {}};
  EXPECT_EQ(content, "r1 v0: rule 0\n");
}

TEST_F(RunWithServerTest, FailOnViolationIs10OnlyForATrainingThatSucceeded) {
  for (const auto& [end, code] : {std::pair("exit 0", 10), {"exit 3", 3}}) {
    std::filesystem::remove(folder_ + "/release");
    server_.Edit([](FakeData& data) { data.runs.clear(); });
    Process run(Training({"--check", "s1", "--fail-on-violation"}, end));
    ASSERT_TRUE(run.WaitForOut("started"));
    ShowRun(v1::RUN_STATUS_ENDED, true, 1);
    Release();
    EXPECT_EQ(run.Wait().code, code);
  }
}

TEST_F(RunWithServerTest, WithoutViolationsTheCodeIsTheTrainings) {
  Process run(Training({"--check", "s1", "--fail-on-violation"}, "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 0);
  Release();
  const ProcessResult result = run.Wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("no incident\n"));
}

TEST_F(RunWithServerTest, AGateTellsWhoseRulesWereLeftAside) {
  server_.Edit([](FakeData& data) {
    data.sets[0].add_invariants()->set_json(R"({"experiments": ["mnist"]})");
  });
  Process run(Training({"--no-builtin", "--check", "s1", "--fail-on-violation"},
                       "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 0);
  server_.Edit([](FakeData& data) {
    data.runs[0].set_experiment("pkg.train");
    data.runs[0].mutable_check()->clear_decided();
    data.runs[0].mutable_check()->set_not_applied(80);
  });
  Release();
  const ProcessResult result = run.Wait();
  EXPECT_EQ(result.code, 11);
  EXPECT_THAT(result.err, testing::StartsWith("traincheck: NOTHING CHECKED"));
  EXPECT_THAT(result.err,
              HasSubstr("the rules of set s1 are of experiment mnist, this run "
                        "is pkg.train: give --experiment mnist\n"));
}

TEST_F(RunWithServerTest, WaitsForTheVerdict) {
  Process run(Training({"--check", "s1"}, "echo over"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_RUNNING, false, 0);
  Release();
  ASSERT_TRUE(run.WaitForOut("over"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 1);
  EXPECT_THAT(run.Wait().err, HasSubstr("1 incident\n"));
}

TEST_F(RunWithServerTest, WaitsNoLongerThanTheDrainTimeout) {
  Process run(Training({"--check", "s1", "--drain-timeout", "0.3"}, "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_RUNNING, false, 0);
  Release();
  const ProcessResult result = run.Wait();
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("no incident so far"));
}

TEST_F(RunWithServerTest, ACollectedRunSaysHowMuchWasRecorded) {
  Process run(Training({"--collect"}, "exit 0"));
  ASSERT_TRUE(run.WaitForOut("started"));
  ShowRun(v1::RUN_STATUS_ENDED, true, 0);
  Release();
  EXPECT_EQ(run.Wait().err,
            "traincheck: recorded run r1: 100 records, 0 dropped, 0 lost\n");
}

TEST_F(RunWithServerTest, AProgramThatRecordsNothingIsToldSo) {
  const ProcessResult result =
      RunShell({"--collect"}, "exit 0", server_.address());
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.err, HasSubstr("no records reached the server"));
}

class SilencedRulesTest : public RunWithServerTest {
 protected:
  // Trains in a folder whose file silences 40 rules; returns how many of them
  // the server was asked about.
  int AskedWith(const std::function<void(FakeData&)>& edit) {
    std::ofstream file(folder_ + "/.traincheck.yaml");
    file << "silence:\n";
    for (int i = 0; i < 40; ++i) {
      file << "  - rule: r" << i << "\n    reason: meant\n";
    }
    file.close();
    server_.Edit(edit);
    Process::Options options =
        Ctl({"--server", server_.address(), "run", "--drain-timeout", "0",
             "--check", "s1", "--", "echo", "trained"});
    const std::string here = std::filesystem::current_path();
    options.command[0] = here + "/" + options.command[0];
    options.command.insert(options.command.begin(), {"env", "-C", folder_});
    options.environment = {"TRAINCHECK_AGENT_DIR=" + here + "/ctl/testing"};
    result_ = RunProcess(options);
    EXPECT_EQ(result_.out, "trained\n") << result_.err;
    int calls = 0;
    server_.Edit([&](FakeData& data) { calls = data.invariant_calls; });
    return calls;
  }

  ProcessResult result_;
};

TEST_F(SilencedRulesTest, ThoseThatNoSetHasAreNamed) {
  EXPECT_EQ(AskedWith([](FakeData& data) {
              data.sets[0].add_invariants()->set_id("r3");
            }),
            40);
  EXPECT_EQ(Count(result_.err, "and no set on the server has it"), 39);
}

// Each call would wait for its own timeout, before the training starts.
TEST_F(SilencedRulesTest, AServerThatFailsIsAskedOnce) {
  EXPECT_EQ(AskedWith([](FakeData& data) {
              data.invariant_failure =
                  grpc::Status(grpc::StatusCode::UNAVAILABLE, "busy");
            }),
            1);
  EXPECT_EQ(Count(result_.err, "no set on the server"), 0);
}

TEST_F(SilencedRulesTest, AServerThatIsSlowIsNotAskedAboutAllOfThem) {
  EXPECT_LT(AskedWith([](FakeData& data) {
              data.invariant_takes = std::chrono::milliseconds(400);
            }),
            20);
}

}  // namespace
}  // namespace traincheck::ctl
