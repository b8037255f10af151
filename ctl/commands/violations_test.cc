// `violations` as a process.
#include <algorithm>
#include <sstream>

#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

TEST_F(CommandsTest, ViolationsListAndShow) {
  EXPECT_EQ(RunJson({"violations", "list"}).size(), 1u);
  EXPECT_EQ(RunJson({"violations", "list", "--run", "r2"}), Json::array());
  EXPECT_EQ(RunJson({"violations", "show", "v1"})["id"], "v1");
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

}  // namespace
}  // namespace traincheck::ctl
