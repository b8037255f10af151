// Every command but `run`, as a process, against a server with canned data.
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

TEST_F(CommandsTest, RunsListAndShow) {
  EXPECT_EQ(RunJson({"runs", "list"})[0]["id"], "r1");
  EXPECT_EQ(RunJson({"runs", "show", "r1"})["processes"], Json::array());
  EXPECT_THAT(Run({"runs", "list"}).out, HasSubstr("EXPERIMENT"));
  EXPECT_THAT(Run({"runs", "show", "r1"}).out, HasSubstr("run          r1"));
}

TEST_F(CommandsTest, AStdoutThatTakesNothingIsSaid) {
  Process::Options runs = ForServer({"runs", "list"});
  runs.command.insert(runs.command.begin(),
                      {"sh", "-c", R"(exec "$0" "$@" >/dev/full)"});
  const ProcessResult result = RunProcess(runs);
  EXPECT_EQ(result.code, 5);
  EXPECT_THAT(result.err, HasSubstr("stdout cannot be written"));
}

// As with | head, also where SIGPIPE does not end the command.
TEST_F(CommandsTest, AReaderThatHasSeenEnoughIsNotAFault) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  close(ends[0]);
  // For the shell, which knows no number above 9.
  ASSERT_EQ(dup2(ends[1], 9), 9);
  for (const char* before : {"", "trap '' PIPE; "}) {
    Process::Options runs = ForServer({"runs", "list"});
    const std::string script = std::string(before) + R"(exec "$0" "$@" >&9)";
    runs.command.insert(runs.command.begin(), {"sh", "-c", script});
    const ProcessResult result = RunProcess(runs);
    EXPECT_EQ(result.code, 128 + SIGPIPE) << before;
    EXPECT_EQ(result.err, "") << before;
  }
  close(9);
  close(ends[1]);
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
  // Without a folder the relay looks where it would spool.
  options.command.pop_back();
  EXPECT_THAT(RunProcess(options).out, HasSubstr("\n/a.spool"));
  options.environment.back() += "/nowhere";
  const ProcessResult lacking = RunProcess(options);
  EXPECT_EQ(lacking.code, 2);
  EXPECT_THAT(lacking.err, HasSubstr("traincheck-relay is not in"));
}

TEST_F(CommandsTest, Status) {
  EXPECT_EQ(RunJson({"status"})["server"]["version"], "0.1");
  EXPECT_THAT(Run({"status"}).out, HasSubstr("no run in progress"));
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
      {"run", "--no-builtin", "--fail-on-violation", "--", "true"},
      {"run", "--collect", "--min-coverage", "50", "--", "true"},
      {"run", "--check", "s", "--min-coverage", "101", "--", "true"},
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

TEST(CommandLineTest, UnknownWordsAreNamedAlsoWhereHelpIsAskedFor) {
  for (const char* word : {"rnu", "watch"}) {
    const ProcessResult result = RunProcess(Ctl({word, "--help"}));
    EXPECT_EQ(result.code, 2) << word;
    EXPECT_EQ(result.out, "") << word;
    EXPECT_THAT(result.err, HasSubstr(std::string("\"") + word + "\""));
  }
}

TEST(CommandLineTest, VersionAndHelpOfACommand) {
  const ProcessResult version = RunProcess(Ctl({"--version"}));
  EXPECT_EQ(version.code, 0);
  EXPECT_THAT(version.out, testing::MatchesRegex("traincheckctl [0-9.]+\n"));
  const ProcessResult help = RunProcess(Ctl({"help", "runs", "list"}));
  EXPECT_EQ(help.code, 0);
  EXPECT_EQ(help.out, RunProcess(Ctl({"runs", "list", "--help"})).out);
  EXPECT_THAT(help.out, HasSubstr("--limit"));
}

TEST(CommandLineTest, HelpGoesToStdout) {
  const ProcessResult result = RunProcess(Ctl({"--help"}));
  EXPECT_EQ(result.code, 0);
  EXPECT_THAT(result.out, HasSubstr("violations"));
}

}  // namespace
}  // namespace traincheck::ctl
