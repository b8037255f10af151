// Every command but `run`, as a process, against a server with canned data.
#include <signal.h>
#include <sys/stat.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctl/testing/fake_control.h"
#include "ctl/testing/process.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;
using Json = nlohmann::json;

// A port of loopback on which nothing listens: "discard" on a system port.
constexpr char kNobody[] = "127.0.0.1:9";

class CommandsTest : public testing::Test {
 protected:
  CommandsTest() {
    server_.Edit([](FakeData& data) {
      data.status.set_version("0.1");
      v1::Run run;
      run.set_id("r1");
      data.runs.push_back(run);
      v1::SetDetail set;
      set.mutable_summary()->set_name("s1");
      set.set_json("{\"name\": \"s1\"}\n");
      set.add_invariants()->set_id("i1");
      data.sets.push_back(set);
      v1::Violation violation;
      violation.set_id("v1");
      violation.set_run("r1");
      data.violations.push_back(violation);
    });
  }

  ProcessResult Run(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"--server", server_.address()});
    return RunProcess(Ctl(arguments));
  }

  Json RunJson(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"-o", "json"});
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.code, 0) << result.err;
    EXPECT_EQ(result.err, "");
    return Json::parse(result.out, nullptr, false);
  }

  FakeControl server_;
};

TEST_F(CommandsTest, RunsListAndShow) {
  EXPECT_EQ(RunJson({"runs", "list"})[0]["id"], "r1");
  EXPECT_EQ(RunJson({"runs", "show", "r1"})["processes"], Json::array());
  EXPECT_THAT(Run({"runs", "list"}).out, HasSubstr("EXPERIMENT"));
  EXPECT_THAT(Run({"runs", "show", "r1"}).out, HasSubstr("run          r1"));
}

TEST_F(CommandsTest, SetsListAndShow) {
  EXPECT_EQ(RunJson({"sets", "list"})[0]["name"], "s1");
  EXPECT_EQ(RunJson({"sets", "show", "s1"})["members"][0]["id"], "i1");
  EXPECT_THAT(Run({"sets", "show", "s1"}).out, HasSubstr("i1"));
}

TEST_F(CommandsTest, PlansOfSetsAndRuns) {
  server_.Edit([](FakeData& data) {
    data.set_plan.set_json(R"({"format":1,"version":1})");
    data.run_plan.set_run("r1");
  });
  EXPECT_EQ(RunJson({"sets", "plan", "s1"})["format"], 1);
  EXPECT_EQ(Json::parse(Run({"sets", "plan", "s1"}).out)["version"], 1);
  EXPECT_THAT(Run({"runs", "plan", "r1"}).out, HasSubstr("was sent no plan"));
  EXPECT_TRUE(RunJson({"runs", "plan", "r1"})["plan"].is_null());
  server_.Edit([](FakeData& data) {
    v1::PlanVersion* version = data.run_plan.add_versions();
    version->set_version(4);
    version->set_from_step(12);
    version->set_origin("by hand");
    v1::RankPlan* rank = data.run_plan.add_ranks();
    rank->set_version(4);
    data.run_plan.set_json(R"({"format":1,"mode":"off"})");
  });
  const Json shown = RunJson({"runs", "plan", "r1"});
  EXPECT_EQ(shown["versions"][0]["from_step"], 12);
  EXPECT_EQ(shown["ranks"][0]["version"], 4);
  EXPECT_TRUE(shown["ranks"][0]["after_step"].is_null());
  EXPECT_EQ(shown["plan"]["mode"], "off");
  EXPECT_THAT(Run({"runs", "plan", "r1"}).out, HasSubstr("by hand"));
}

TEST_F(CommandsTest, APlanIsSentAsItIs) {
  const std::string file = testing::TempDir() + "/plan.json";
  std::ofstream(file) << R"({"format": 1})";
  EXPECT_EQ(Run({"runs", "plan", "r1", "--file", file}).code, 0);
  server_.Edit([](FakeData& data) {
    EXPECT_EQ(data.last_plan.run(), "r1");
    EXPECT_EQ(data.last_plan.json(), R"({"format": 1})");
  });
  EXPECT_EQ(Run({"runs", "plan", "r1", "--file", "/no/such"}).code, 2);
}

TEST_F(CommandsTest, InvariantsListAndShow) {
  EXPECT_EQ(RunJson({"invariants", "list", "s1"})[0]["id"], "i1");
  EXPECT_EQ(RunJson({"invariants", "show", "i1"})["id"], "i1");
  EXPECT_THAT(Run({"invariants", "list", "s1"}).out, HasSubstr("SUPPORT"));
}

TEST_F(CommandsTest, ViolationsListAndShow) {
  EXPECT_EQ(RunJson({"violations", "list"}).size(), 1u);
  EXPECT_EQ(RunJson({"violations", "list", "--run", "r2"}), Json::array());
  EXPECT_EQ(RunJson({"violations", "show", "v1"})["id"], "v1");
}

// A relay that says what it was called with and one delivered file.
TEST_F(CommandsTest, SpoolSendShowsWhatTheRelaySays) {
  std::string folder = std::string(getenv("TEST_TMPDIR")) + "/relay-XXXXXX";
  ASSERT_NE(mkdtemp(folder.data()), nullptr);
  const std::string relay = folder + "/traincheck-relay";
  std::ofstream(relay) << "#!/bin/sh\n"
                          "echo '{\"file\": \"'$2'/a.spool\", \"run\": "
                          "\"'$TRAINCHECK_SERVER'\", \"pid\": 7, "
                          "\"batches\": 3, \"result\": \"refused\", "
                          "\"reason\": \"why\"}'\nexit 3\n";
  ASSERT_EQ(chmod(relay.c_str(), 0700), 0);
  Process::Options options =
      Ctl({"--server", "127.0.0.1:9", "spool", "send", "dir", "-o", "json"});
  options.environment = {"TRAINCHECK_AGENT_DIR=" + folder};
  const ProcessResult result = RunProcess(options);
  EXPECT_EQ(result.code, 3);
  EXPECT_EQ(Json::parse(result.out, nullptr, false),
            Json::parse(R"([{"file": "dir/a.spool", "pid": 7, "host": null,
                             "run": "127.0.0.1:9", "batches": 3,
                             "result": "refused", "reason": "why"}])"));
  options.command.pop_back();
  options.command.pop_back();
  EXPECT_THAT(RunProcess(options).out, HasSubstr("RESULT   REASON"));
  options.environment.back() += "/nowhere";
  const ProcessResult lacking = RunProcess(options);
  EXPECT_EQ(lacking.code, 2);
  EXPECT_THAT(lacking.err, HasSubstr("traincheck-relay is not in"));
}

TEST_F(CommandsTest, WatchEndsWithTheRunAndPrintsALineEach) {
  server_.Edit([](FakeData& data) {
    data.violations.push_back(data.violations[0]);
    data.violations[1].set_count(2);
    data.runs[0].set_status(v1::RUN_STATUS_ENDED);
  });
  const std::vector<std::string> watch = {"violations", "watch", "--run", "r1"};
  const std::string people = Run(watch).out;
  EXPECT_THAT(people, testing::StartsWith("v1 r1 "));
  EXPECT_EQ(std::count(people.begin(), people.end(), '\n'), 1);

  auto with_json = watch;
  with_json.insert(with_json.end(), {"-o", "json"});
  std::istringstream lines(Run(with_json).out);
  std::string line;
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(Json::parse(line)["count"], 0);
  ASSERT_TRUE(std::getline(lines, line));
  EXPECT_EQ(Json::parse(line)["count"], 2);
}

TEST_F(CommandsTest, WatchPrintsWhatComesAtOnce) {
  Process watch(Ctl({"--server", server_.address(), "violations", "watch"}));
  ASSERT_TRUE(watch.WaitForOut("v1 "));
  server_.Edit([](FakeData& data) {
    data.violations.push_back(data.violations[0]);
    data.violations[1].set_id("v2");
  });
  EXPECT_TRUE(watch.WaitForOut("v2 "));
}

TEST_F(CommandsTest, Status) {
  EXPECT_EQ(RunJson({"status"})["server"]["version"], "0.1");
  EXPECT_THAT(Run({"status"}).out, HasSubstr("no run in progress"));
}

TEST_F(CommandsTest, InferSendsWhatItWasToldAndShowsStagesOnStderr) {
  server_.Edit([](FakeData& data) {
    data.infer.resize(3);
    data.infer[0].set_stage("load");
    data.infer[1].set_stage("learn");
    data.infer[2].mutable_result()->set_set("s2");
    data.infer[2].mutable_result()->set_invariants(12);
  });
  const ProcessResult result =
      Run({"infer", "--from", "r1,r2", "--set", "s2", "--relations",
           "Consistent,EventContain", "--exclude-functions", "a.*,b",
           "--max-chance", "0.001", "-o", "json"});
  EXPECT_EQ(result.code, 0);
  EXPECT_EQ(result.err, "load\nlearn\n");
  EXPECT_EQ(Json::parse(result.out)["invariants"], 12);
  server_.Edit([](FakeData& data) {
    EXPECT_EQ(data.last_infer.runs_size(), 2);
    EXPECT_EQ(data.last_infer.runs(1), "r2");
    EXPECT_EQ(data.last_infer.relations_size(), 2);
    const v1::InferOptions& options = data.last_infer.options();
    EXPECT_EQ(options.exclude_functions(1), "b");
    EXPECT_EQ(options.max_chance(), 0.001);
    EXPECT_EQ(data.last_infer.set(), "s2");
  });
}

TEST_F(CommandsTest, InferDetachedPrintsTheJob) {
  server_.Edit([](FakeData& data) {
    data.jobs.resize(1);
    data.jobs[0].set_id("j3");
    data.jobs[0].set_status(v1::JOB_STATUS_QUEUED);
    data.jobs[0].mutable_request()->set_set("s2");
  });
  const std::vector<std::string> infer = {"infer", "--from", "r1",
                                          "--set", "s2",     "--detach"};
  const Json job = RunJson(infer);
  EXPECT_EQ(job["job"], "j3");
  EXPECT_EQ(job["id"], "j3");
  EXPECT_EQ(job["status"], "queued");
  EXPECT_EQ(job["set"], "s2");
  EXPECT_TRUE(job["invariants"].is_null());
  EXPECT_EQ(Run(infer).out,
            "job j3 is queued: see traincheckctl jobs show j3\n");
  server_.Edit([](FakeData& data) { EXPECT_EQ(data.last_infer.set(), "s2"); });
}

TEST_F(CommandsTest, AnInterruptedInferSaysThatItsJobGoesOn) {
  server_.Edit([](FakeData& data) {
    data.infer.resize(1);
    data.infer[0].set_job("j3");
    data.infer[0].set_stage("reading r1");
    data.infer_hangs = true;
  });
  for (const int number : {SIGINT, SIGTERM}) {
    Process infer(Ctl({"--server", server_.address(), "infer", "--from", "r1",
                       "--set", "s2"}));
    ASSERT_TRUE(infer.WaitForErr("reading r1"));
    kill(infer.pid(), number);
    const ProcessResult result = infer.Wait();
    EXPECT_EQ(result.code, 128 + number);
    EXPECT_EQ(result.out, "");
    EXPECT_THAT(result.err, HasSubstr("job j3 goes on"));
    EXPECT_THAT(result.err, HasSubstr("traincheckctl jobs cancel j3"));
  }
}

TEST_F(CommandsTest, JobsListShowAndCancel) {
  server_.Edit([](FakeData& data) {
    data.jobs.resize(2);
    data.jobs[0].set_id("j1");
    data.jobs[0].set_status(v1::JOB_STATUS_FAILED);
    data.jobs[0].set_reason("its process was killed by signal 9");
    data.jobs[0].mutable_request()->add_runs("r1");
    data.jobs[1].set_id("j2");
    data.jobs[1].set_status(v1::JOB_STATUS_DONE);
    data.jobs[1].set_peak_bytes(3 << 20);
    data.jobs[1].mutable_result()->set_invariants(7);
  });
  const Json list = RunJson({"jobs", "list"});
  ASSERT_EQ(list.size(), 2u);
  std::vector<std::string> keys;
  for (const auto& [key, value] : list[0].items()) keys.push_back(key);
  EXPECT_THAT(keys, testing::UnorderedElementsAre("id", "set", "runs", "status",
                                                  "stage", "fraction", "reason",
                                                  "queued", "started", "ended",
                                                  "invariants", "peak_bytes"));
  EXPECT_EQ(list[0]["status"], "failed");
  EXPECT_EQ(list[0]["reason"], "its process was killed by signal 9");
  EXPECT_TRUE(list[0]["invariants"].is_null());
  EXPECT_EQ(list[1]["invariants"], 7);
  EXPECT_EQ(list[1]["peak_bytes"], 3 << 20);
  EXPECT_EQ(RunJson({"jobs", "show", "j1"})["runs"][0], "r1");
  EXPECT_THAT(Run({"jobs", "list"}).out, HasSubstr("killed by signal 9"));
  EXPECT_THAT(Run({"jobs", "show", "j2"}).out, HasSubstr("status      done"));
  EXPECT_EQ(RunJson({"jobs", "cancel", "j2"})["status"], "cancelled");
  EXPECT_EQ(Run({"jobs", "show", "j9"}).code, 3);
  EXPECT_EQ(Run({"jobs", "show"}).code, 2);
}

TEST_F(CommandsTest, ExportAndImport) {
  const std::string file = std::string(getenv("TEST_TMPDIR")) + "/set.json";
  const ProcessResult exported =
      Run({"invariants", "export", "--set", "s1", file});
  EXPECT_EQ(exported.code, 0);
  EXPECT_EQ(exported.out, "");
  EXPECT_EQ(Run({"invariants", "export", "--set", "s1", "-"}).out,
            "{\"name\": \"s1\"}\n");

  EXPECT_EQ(RunJson({"invariants", "import", "--set", "s2", file})["name"],
            "s2");
  server_.Edit([](FakeData& data) {
    EXPECT_EQ(data.last_import.json(), "{\"name\": \"s1\"}\n");
  });
}

TEST_F(CommandsTest, FilesThatCannotBeUsedAreNamed) {
  const ProcessResult read =
      Run({"invariants", "import", "--set", "s2", "/no/such/file"});
  EXPECT_EQ(read.code, 2);
  EXPECT_THAT(read.err, HasSubstr("/no/such/file"));
  const ProcessResult write =
      Run({"invariants", "export", "--set", "s1", "/no/such/file"});
  EXPECT_EQ(write.code, 2);
  EXPECT_THAT(write.err, HasSubstr("/no/such/file"));
}

TEST_F(CommandsTest, AServerErrorIsPrintedWithCode3) {
  const ProcessResult missing = Run({"runs", "show", "r9"});
  EXPECT_EQ(missing.code, 3);
  EXPECT_EQ(missing.out, "");
  EXPECT_EQ(missing.err, "traincheckctl: no run r9\n");
  server_.Edit([](FakeData& data) {
    data.failure = grpc::Status(grpc::StatusCode::INTERNAL, "store is broken");
  });
  for (const char* command :
       {"status", "runs list", "violations watch", "infer --from r1 --set s"}) {
    std::istringstream words(command);
    const std::vector<std::string> arguments{
        std::istream_iterator<std::string>(words), {}};
    const ProcessResult result = Run(arguments);
    EXPECT_EQ(result.code, 3) << command;
    EXPECT_EQ(result.err, "traincheckctl: store is broken\n") << command;
  }
}

TEST(CommandLineTest, NobodyAnswersIsCode4AndNamesTheAddress) {
  for (const char* command : {"status", "runs list", "violations watch"}) {
    std::istringstream words(command);
    std::vector<std::string> arguments{
        std::istream_iterator<std::string>(words), {}};
    arguments.insert(arguments.begin(), {"--server", kNobody});
    const ProcessResult result = RunProcess(Ctl(arguments));
    EXPECT_EQ(result.code, 4) << command;
    EXPECT_THAT(result.err, HasSubstr(kNobody)) << command;
    EXPECT_THAT(result.err, HasSubstr("TRAINCHECK_SERVER")) << command;
  }
}

TEST(CommandLineTest, TheServerComesFromTheEnvironment) {
  FakeControl server;
  Process::Options options = Ctl({"status"});
  options.environment.push_back("TRAINCHECK_SERVER=" + server.address());
  EXPECT_EQ(RunProcess(options).code, 0);
}

TEST(CommandLineTest, AProxyIsNotAskedForLoopback) {
  FakeControl server;
  Process::Options options = Ctl({"--server", server.address(), "status"});
  options.environment.push_back("http_proxy=http://127.0.0.1:9");
  EXPECT_EQ(RunProcess(options).code, 0);
}

TEST(CommandLineTest, AddressesOutsideOfLoopbackAreRefused) {
  for (const char* address :
       {"10.0.0.1:7471", "example.org:7471", "nonsense"}) {
    const ProcessResult result =
        RunProcess(Ctl({"--server", address, "status"}));
    EXPECT_EQ(result.code, 2) << address;
    EXPECT_THAT(result.err, HasSubstr(address));
  }
}

TEST(CommandLineTest, WrongUsageIsCode2OnStderr) {
  const std::vector<std::vector<std::string>> wrong = {
      {},
      {"nonsense"},
      {"runs"},
      {"runs", "show"},
      {"status", "-o", "xml"},
      {"status", "--", "true"},
      {"infer", "--set", "s"},
      {"run"},
      {"run", "--"},
      {"run", "true"},
      {"run", "--collect", "--check", "s", "--", "true"},
      {"run", "--fail-on-violation", "--", "true"},
      {"run", "--run", "a b", "--", "true"},
      {"run", "--drain-timeout", "-1", "--", "true"},
      {"env", "--collect", "--check", "s"}};
  for (const auto& arguments : wrong) {
    const ProcessResult result = RunProcess(Ctl(arguments));
    EXPECT_EQ(result.code, 2) << testing::PrintToString(arguments);
    EXPECT_EQ(result.out, "") << testing::PrintToString(arguments);
    EXPECT_NE(result.err, "") << testing::PrintToString(arguments);
  }
}

TEST(CommandLineTest, HelpGoesToStdout) {
  const ProcessResult result = RunProcess(Ctl({"--help"}));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("violations"));
}

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
                                    "libm.so.6\nit's 1 127.0.0.1:7471\n"));
}

TEST(EnvCommandTest, NamesThePlanFromTheRootAndRefusesOneThatIsNotThere) {
  const std::string path = testing::TempDir() + "/plan.json";
  std::ofstream(path) << "{}";
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
                    HasSubstr("export TRAINCHECK_CHECK=s\n")));
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
  EXPECT_THAT(result.err, HasSubstr("line 1: sever is no setting"));
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
  EXPECT_THAT(result.out, HasSubstr(state + "/traincheck/plans/s1-"));
  // Whoever names a plan means it, and a run that is not checked has none.
  const std::string own = testing::TempDir() + "/own.json";
  std::ofstream(own) << "{}";
  EXPECT_THAT(lines({"--check", "s1", "--plan", own}, server.address()).out,
              HasSubstr("TRAINCHECK_PLAN=" + own));
  EXPECT_THAT(lines({}, server.address()).out,
              Not(HasSubstr("TRAINCHECK_PLAN")));
  // Without a server the job starts all the same.
  const ProcessResult alone = lines({"--check", "s1"}, kNobody);
  EXPECT_EQ(alone.code, 0);
  EXPECT_THAT(alone.out, HasSubstr("TRAINCHECK_CHECK=s1"));
  EXPECT_THAT(alone.out, Not(HasSubstr("TRAINCHECK_PLAN")));
  EXPECT_THAT(alone.err, HasSubstr("after the first steps"));
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
