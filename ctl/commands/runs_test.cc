// `runs` as a process.
#include "ctl/testing/commands_fixture.h"

namespace traincheck::ctl {
namespace {

using testing::ElementsAre;

class RunsTest : public CommandsTest {
 protected:
  RunsTest() {
    server_.Edit([](FakeData& data) {
      data.runs.resize(3);
      data.runs[0].set_id("cnn-2");
      data.runs[0].set_experiment("cnn");
      data.runs[0].set_status(v1::RUN_STATUS_ENDED);
      data.runs[0].set_records(5);
      data.runs[1].set_id("cnn-1");
      data.runs[1].set_experiment("cnn");
      data.runs[1].set_status(v1::RUN_STATUS_LOST);
      data.runs[1].set_started_unix_ns(1);
      data.runs[2].set_id("mlp-1");
      data.runs[2].set_started_unix_ns(9'000'000'000'000'000'000);
      data.runs[2].set_status(v1::RUN_STATUS_RUNNING);
    });
  }

  std::vector<std::string> Listed(std::vector<std::string> flags) {
    flags.insert(flags.begin(), {"runs", "list"});
    std::vector<std::string> ids;
    for (const Json& row : RunJson(flags)) ids.push_back(row["id"]);
    return ids;
  }
};

TEST_F(RunsTest, ListsAreNarrowedAndOrdered) {
  EXPECT_THAT(Listed({}), ElementsAre("cnn-2", "cnn-1", "mlp-1"));
  EXPECT_THAT(Listed({"--experiment", "cnn"}), ElementsAre("cnn-2", "cnn-1"));
  EXPECT_THAT(Listed({"--status", "lost"}), ElementsAre("cnn-1"));
  EXPECT_THAT(Listed({"--since", "2001-01-01"}), ElementsAre("mlp-1"));
  EXPECT_THAT(Listed({"--sort", "id"}), ElementsAre("cnn-1", "cnn-2", "mlp-1"));
  EXPECT_THAT(Listed({"--sort", "records", "--reverse"}),
              ElementsAre("cnn-2", "mlp-1", "cnn-1"));
}

TEST_F(RunsTest, APageIsAskedForAndTheOneBeforeItIsNamed) {
  const ProcessResult page =
      Run({"runs", "list", "--newest", "3", "--before", "mlp-2", "--since",
           "2001-01-01", "--experiment", "mlp"});
  EXPECT_EQ(page.code, 0);
  EXPECT_EQ(page.err,
            "traincheckctl: older runs: --newest 3 --before cnn-2, or --all\n");
  v1::ListRunsRequest asked;
  server_.Edit([&](FakeData& data) { asked = data.last_list; });
  EXPECT_EQ(asked.newest(), 3u);
  EXPECT_EQ(asked.before(), "mlp-2");
  EXPECT_EQ(asked.experiment(), "mlp");
  EXPECT_EQ(asked.started_since_unix_ns(), 978'307'200'000'000'000u);
  EXPECT_TRUE(asked.without_processes());
  EXPECT_EQ(Run({"runs", "list", "--newest", "4"}).err, "");
}

TEST_F(RunsTest, TheNewestAreAskedForUnlessAllAreMeant) {
  const auto asked_by = [&](std::vector<std::string> flags) {
    Listed(std::move(flags));
    uint32_t newest = 0;
    server_.Edit([&](FakeData& data) { newest = data.last_list.newest(); });
    return newest;
  };
  EXPECT_EQ(asked_by({}), 200u);
  EXPECT_EQ(asked_by({"--experiment", "cnn"}), 200u);
  EXPECT_EQ(asked_by({"--all"}), 0u);
  // What is chosen from the list is chosen from all of it.
  EXPECT_EQ(asked_by({"--status", "lost"}), 0u);
  EXPECT_EQ(asked_by({"--sort", "records"}), 0u);
  EXPECT_EQ(asked_by({"--since", "2001-01-01"}), 0u);
  EXPECT_EQ(Run({"runs", "list", "--all", "--newest", "3"}).code, 2);
}

TEST_F(RunsTest, AnIdMayBeCutShort) {
  EXPECT_EQ(RunJson({"runs", "show", "m"})["id"], "mlp-1");
  const ProcessResult several = Run({"runs", "show", "cnn"});
  EXPECT_EQ(several.code, 3);
  EXPECT_EQ(several.err, "traincheckctl: \"cnn\" begins 2 ids: cnn-2 cnn-1\n");
}

}  // namespace
}  // namespace traincheck::ctl
