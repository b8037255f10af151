// `violations` as a process.
#include <signal.h>

#include <algorithm>
#include <sstream>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::HasSubstr;
using testing::Not;

constexpr uint64_t kSecond = 1'000'000'000;
// Long ago, and in the far future: what --since may cut.
constexpr uint64_t kEarly = 1'000'000'000 * kSecond;
constexpr uint64_t kLate = 9'000'000'000 * kSecond;

v1::Violation Violation(const std::string& id, uint64_t first_seen_unix_ns,
                        uint64_t revision) {
  v1::Violation violation;
  violation.set_id(id);
  violation.set_run("r1");
  violation.set_status("open");
  violation.set_first_seen_unix_ns(first_seen_unix_ns);
  violation.set_revision(revision);
  return violation;
}

class ViolationsTest : public CommandsTest {
 protected:
  void Have(const std::vector<v1::Violation>& violations) {
    server_.Edit([&](FakeData& data) { data.violations = violations; });
  }
  void Add(const v1::Violation& violation) {
    server_.Edit([&](FakeData& data) { data.violations.push_back(violation); });
  }
  void EndRun() {
    server_.Edit(
        [](FakeData& data) { data.runs[0].set_status(v1::RUN_STATUS_ENDED); });
  }
  std::vector<std::string> Listed(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"violations", "list"});
    std::vector<std::string> ids;
    for (const Json& row : RunJson(flags)) ids.push_back(row["id"]);
    return ids;
  }
};

TEST_F(ViolationsTest, ListAndShow) {
  EXPECT_EQ(RunJson({"violations", "list"}).size(), 1u);
  EXPECT_EQ(RunJson({"violations", "show", "v1"})["id"], "v1");
  EXPECT_EQ(Run({"violations", "list", "--run", "r2"}).code, 3);
}

TEST_F(ViolationsTest, JsonIsByIncidentOnDemand) {
  v1::Violation follower = Violation("a", kEarly, 1);
  follower.set_incident("b");
  follower.set_cause("b");
  v1::Violation lead = Violation("b", kEarly, 2);
  lead.set_incident("b");
  Have({follower, lead});
  EXPECT_EQ(RunJson({"violations", "list"}).size(), 2u);
  const Json incidents = RunJson({"violations", "list", "--by-incident"});
  ASSERT_EQ(incidents.size(), 1u);
  EXPECT_EQ(incidents[0]["id"], "b");
  ASSERT_EQ(incidents[0]["follows"].size(), 1u);
  EXPECT_EQ(incidents[0]["follows"][0]["id"], "a");
  EXPECT_EQ(incidents[0]["beside"], Json::array());
}

TEST_F(ViolationsTest, AnIdMayBeCutShort) {
  Have({Violation("02c9a", kEarly, 1), Violation("02c9b", kEarly, 2),
        Violation("0", kEarly, 3)});
  EXPECT_EQ(RunJson({"violations", "show", "02c9b"})["id"], "02c9b");
  EXPECT_EQ(RunJson({"violations", "show", "0"})["id"], "0");
  const ProcessResult several = Run({"violations", "show", "02c9"});
  EXPECT_EQ(several.code, 3);
  EXPECT_EQ(several.err, "traincheckctl: \"02c9\" begins 2 ids: 02c9a 02c9b\n");
  Have({Violation("02c9a", kEarly, 1)});
  EXPECT_EQ(RunJson({"violations", "show", "02c9"})["id"], "02c9a");
  const ProcessResult none = Run({"violations", "show", "ffff"});
  EXPECT_EQ(none.code, 3);
  EXPECT_EQ(none.err, "traincheckctl: no violation ffff\n");
}

TEST_F(ViolationsTest, ListsAreNarrowedAndOrdered) {
  v1::Violation ended = Violation("b", kLate, 2);
  ended.set_status("ended");
  ended.set_first_step(3);
  Have({Violation("a", kEarly, 1), ended});
  using testing::ElementsAre;
  EXPECT_THAT(Listed({"--status", "ended"}), ElementsAre("b"));
  EXPECT_THAT(Listed({"--since", "1h"}), ElementsAre("b"));
  EXPECT_THAT(Listed({"--sort", "seen", "--reverse"}), ElementsAre("b", "a"));
  EXPECT_THAT(Listed({"--sort", "step"}), ElementsAre("a", "b"));
  const ProcessResult cut = Run({"violations", "list", "--limit", "1"});
  EXPECT_THAT(cut.out, Not(HasSubstr("\nb")));
  EXPECT_THAT(cut.err, HasSubstr("the first 1 of 2 are shown"));
  for (const char* flag : {"--status=new", "--since=later", "--sort=name",
                           "--limit=0", "--limit=-1"}) {
    EXPECT_EQ(Run({"violations", "list", flag}).code, 2) << flag;
  }
}

TEST_F(ViolationsTest, WhatIsSilencedIsListedOnDemandOnlyAndNotWatched) {
  v1::Violation silenced = Violation("a", kEarly, 1);
  silenced.set_silenced_by("s1: known");
  silenced.set_mark("confirmed");
  Have({silenced, Violation("b", kEarly, 2)});
  EndRun();
  using testing::ElementsAre;
  EXPECT_THAT(Listed({"--all"}), ElementsAre("a", "b"));
  const ProcessResult audible = Run({"violations", "list", "-o", "json"});
  EXPECT_EQ(Json::parse(audible.out).size(), 1u);
  EXPECT_EQ(Json::parse(audible.out)[0]["id"], "b");
  EXPECT_EQ(audible.err,
            "traincheckctl: 1 violation is silenced: --all shows it\n");
  const std::string table = Run({"violations", "list", "--all"}).out;
  EXPECT_THAT(table, HasSubstr("GRADE     MARK"));
  EXPECT_THAT(table, HasSubstr("silenced  confirmed"));
  const std::string watched =
      Run({"violations", "watch", "--run", "r1", "--all", "-o", "json"}).out;
  EXPECT_THAT(watched, Not(HasSubstr("\"a\"")));
  EXPECT_THAT(watched, HasSubstr("\"b\""));
}

TEST_F(ViolationsTest, WatchOfAnUnknownRunFailsUnlessItIsToWait) {
  const ProcessResult unknown = Run({"violations", "watch", "--run", "r2"});
  EXPECT_EQ(unknown.code, 3);
  EXPECT_EQ(unknown.out, "");
  EXPECT_THAT(unknown.err, HasSubstr("no run r2"));
  EXPECT_THAT(unknown.err, HasSubstr("--wait"));
  Process watch(ForServer({"violations", "watch", "--run", "r2", "--wait"}));
  server_.Edit([](FakeData& data) {
    v1::Violation violation = Violation("v2", kLate, 9);
    violation.set_run("r2");
    data.violations.push_back(violation);
  });
  EXPECT_TRUE(watch.WaitForOut(" v2 r2 "));
  server_.Edit([](FakeData& data) {
    data.runs[0].set_id("r2");
    data.runs[0].set_status(v1::RUN_STATUS_ENDED);
  });
  EXPECT_EQ(watch.Wait().code, 0);
}

TEST_F(ViolationsTest, WatchBeginsNowAndSaysWhatItLeavesOut) {
  Process watch(ForServer({"violations", "watch"}));
  ASSERT_TRUE(watch.WaitForErr("1 earlier incident is not shown"));
  Add(Violation("v2", kLate, 2));
  EXPECT_TRUE(watch.WaitForOut("2255-03-14T16:00:00.000Z v2 r1 "));
  kill(watch.pid(), SIGTERM);
  EXPECT_THAT(watch.Wait().out, Not(HasSubstr("v1")));
}

TEST_F(ViolationsTest, WatchShowsFromBeforeWhatItIsAskedFor) {
  Have({Violation("a", kEarly, 1), Violation("b", kLate, 2)});
  EndRun();
  const std::vector<std::string> watch = {"violations", "watch", "--run", "r1"};
  const auto out = [&](const std::string& flag) {
    std::vector<std::string> arguments = watch;
    arguments.push_back(flag);
    return Run(arguments).out;
  };
  EXPECT_THAT(out("--all"),
              testing::MatchesRegex("[^ ]+ a r1 [^\n]*\n[^ ]+ b r1 [^\n]*\n"
                                    "-- new incidents --\n"));
  EXPECT_THAT(
      out("--since=1h"),
      testing::MatchesRegex("[^ ]+ b r1 [^\n]*\n-- new incidents --\n"));
  EXPECT_EQ(Run(watch).out, "");
  EXPECT_EQ(Run({"violations", "watch", "--all", "--since", "1h"}).code, 2);
}

TEST_F(ViolationsTest, WatchTellsPeopleOfAViolationOnceAndScriptsOfEachState) {
  Have({Violation("a", kEarly, 1)});
  Process people(ForServer({"violations", "watch", "--run", "r1"}));
  Process script(
      ForServer({"violations", "watch", "--run", "r1", "--all", "-o", "json"}));
  ASSERT_TRUE(people.WaitForErr("1 earlier incident"));
  Add(Violation("b", kLate, 2));
  ASSERT_TRUE(people.WaitForOut(" b "));
  ASSERT_TRUE(script.WaitForOut("\"b\""));
  v1::Violation more = Violation("b", kLate, 3);
  more.set_count(2);
  Add(more);
  ASSERT_TRUE(script.WaitForOut("\"count\":2"));
  EndRun();
  const std::string told = people.Wait().out;
  EXPECT_EQ(std::count(told.begin(), told.end(), '\n'), 1) << told;
  std::istringstream lines(script.Wait().out);
  std::vector<int> counts;
  for (std::string line; std::getline(lines, line);) {
    counts.push_back(Json::parse(line)["count"]);
  }
  EXPECT_THAT(counts, testing::ElementsAre(0, 0, 2));
}

}  // namespace
}  // namespace traincheck::ctl
