// The command for alerts, with the real daemon as a process.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <thread>

#include "server/feedback_for_testing.h"

namespace traincheck::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

// Of all its threads.
std::string ChildrenOf(pid_t pid) {
  std::string children;
  for (const auto& task : std::filesystem::directory_iterator(
           "/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream file(task.path() / "children");
    children += std::string(std::istreambuf_iterator<char>(file), {});
  }
  return children;
}

class AlertingTest : public FeedbackTest {
 protected:
  v1::AlertCalls Calls() {
    grpc::ClientContext context;
    v1::AlertCalls calls;
    EXPECT_TRUE(Feedback()->GetAlertCalls(&context, {}, &calls).ok());
    return calls;
  }
  // The daemon with a command that adds the run and incident to a file.
  void StartWithCommand(std::vector<std::string> more = {}) {
    more.insert(
        more.begin(),
        {"--on-alert",
         "echo \"$TRAINCHECK_ALERT_RUN $TRAINCHECK_ALERT_INCIDENT\" >> " +
             folder_ + "/called"});
    daemon_.Start(more);
  }
  std::vector<std::string> Called() {
    std::ifstream file(folder_ + "/called");
    std::vector<std::string> lines;
    for (std::string line; std::getline(file, line);) lines.push_back(line);
    return lines;
  }
  // Nobody was called beyond that: another run was, which came later.
  void AwaitCalled(size_t count) {
    EXPECT_TRUE(WaitUntil([&] { return Called().size() >= count; }));
    EXPECT_THAT(Called(), SizeIs(count));
  }
};

TEST_F(AlertingTest, TheCommandIsStartedOnceForAnIncidentAlsoAfterAKill) {
  StartWithCommand();
  SaveRules(3);
  const std::vector<v1::Batch> batches = TrainingBatches();
  const size_t half = batches.size() / 2;
  {
    TestRelay relay(daemon_.Channel());
    relay.Greet(HelloOf("first"));
    for (size_t i = 0; i < half; ++i) relay.Send(Request(batches[i]));
    ASSERT_TRUE(relay.AwaitAcknowledged(half));
    AwaitCalled(1);
  }
  EXPECT_THAT(Called()[0], HasSubstr("first " + Lead("first").id()));
  daemon_.Kill();
  StartWithCommand();
  // The incident goes on, and another violation leads it now.
  SilenceRule(Lead("first").invariant_id());
  v1::Hello hello = HelloOf("first");
  hello.set_resumes(true);
  TestRelay relay(daemon_.Channel());
  for (size_t i = relay.Greet(hello).next_batch(); i < batches.size(); ++i) {
    relay.Send(Request(batches[i]));
  }
  EXPECT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
  ASSERT_TRUE(WaitUntil([&] { return IsChecked("first"); }));
  EXPECT_GT(Lead("first").count(), half);
  Train("second");
  AwaitCalled(2);
  EXPECT_THAT(Called()[1], HasSubstr("second "));
  EXPECT_EQ(Calls().started(), 2u);
  EXPECT_EQ(Calls().failed(), 0u);
}

// Before the violation is stored, between that and the call, or behind it.
TEST_F(AlertingTest, KilledAtAnyMomentItCallsNobodyTwice) {
  StartWithCommand();
  SaveRules(2);
  const std::vector<v1::Batch> batches = TrainingBatches();
  for (int i = 0; i < 10; ++i) {
    const std::string run = "run" + std::to_string(i);
    {
      TestRelay relay(daemon_.Channel());
      relay.Greet(HelloOf(run));
      for (const v1::Batch& batch : batches) relay.Send(Request(batch));
      std::this_thread::sleep_for(std::chrono::milliseconds(3 * i));
      daemon_.Kill();
    }
    StartWithCommand({"--on-alert-per-hour", "100"});
    v1::Hello hello = HelloOf(run);
    hello.set_resumes(true);
    TestRelay relay(daemon_.Channel());
    for (size_t at = relay.Greet(hello).next_batch(); at < batches.size();
         ++at) {
      relay.Send(Request(batches[at]));
    }
    EXPECT_TRUE(relay.Leave(v1::END_KIND_CLEAN, {}).ok());
    ASSERT_TRUE(WaitUntil([&] { return IsChecked(run); }));
  }
  // One more, so that all before it were looked at.
  Train("last");
  ASSERT_TRUE(WaitUntil([&] {
    const auto called = Called();
    return !called.empty() && called.back().starts_with("last ");
  }));
  std::map<std::string, int> calls;
  for (const std::string& line : Called()) ++calls[line];
  EXPECT_LE(calls.size(), 11u);
  for (const auto& [incident, times] : calls) EXPECT_EQ(times, 1) << incident;
}

TEST_F(AlertingTest, NobodyIsCalledForWhatIsSilencedOrWasFoundBefore) {
  daemon_.Start();
  SaveRules(1);
  Train("before");
  // In order: what was not yet stored would be found again.
  daemon_.Signal(SIGTERM);
  ASSERT_EQ(daemon_.Wait(), 0);
  StartWithCommand();
  v1::Silence silence;
  silence.set_experiment("quiet");
  Silence(silence);
  Train("silenced", "quiet");
  Train("loud");
  AwaitCalled(1);
  EXPECT_THAT(Called()[0], HasSubstr("loud "));
}

TEST_F(AlertingTest, MoreThanAllowedIsHeldBackAndCountedOverRestarts) {
  const std::vector<std::string> limit = {"--on-alert-per-hour", "1"};
  StartWithCommand(limit);
  SaveRules(1);
  Train("first");
  AwaitCalled(1);
  daemon_.Kill();
  StartWithCommand(limit);
  Train("second");
  ASSERT_TRUE(WaitUntil([&] { return Calls().held_back() == 1; }));
  daemon_.Kill();
  StartWithCommand();
  EXPECT_EQ(Calls().started(), 1u);
  EXPECT_EQ(Calls().held_back(), 1u);
  Train("third");
  AwaitCalled(2);
  EXPECT_THAT(Called()[1], HasSubstr("third "));
}

TEST_F(AlertingTest, ACommandThatHangsOrFailsHurtsNobody) {
  daemon_.Start(
      {"--on-alert", "sleep 1000 & sleep 1000", "--on-alert-timeout", "0.2"});
  SaveRules(1);
  Train("hangs");
  ASSERT_TRUE(WaitUntil([&] { return Calls().failed() == 1; }));
  EXPECT_THAT(Calls().last_failure(), HasSubstr("killed after"));
  // No zombie stays.
  EXPECT_TRUE(WaitUntil([&] { return ChildrenOf(daemon_.pid()).empty(); }));
  daemon_.Kill();
  daemon_.Start({"--on-alert", "exit 7"});
  Train("fails");
  ASSERT_TRUE(WaitUntil([&] { return Calls().failed() == 1; }));
  EXPECT_EQ(Calls().last_failure(), "exit code 7");
  daemon_.Signal(SIGTERM);
  EXPECT_EQ(daemon_.Wait(), 0);
}

TEST_F(AlertingTest, TheCommandMayStandInAFile) {
  std::ofstream(folder_ + "/traincheckd.toml")
      << "# who is called\n"
      << "on-alert = 'echo \"$TRAINCHECK_ALERT_RUN\" >> " << folder_
      << "/called'\non-alert-per-hour = 2\n";
  daemon_.Start({"--config", folder_ + "/traincheckd.toml"});
  EXPECT_EQ(Calls().per_hour(), 2u);
  SaveRules(1);
  Train("run");
  AwaitCalled(1);
  EXPECT_THAT(Called(), ElementsAre("run"));
}

TEST_F(AlertingTest, AMistakeInTheFileIsAnError) {
  const std::string file = folder_ + "/traincheckd.toml";
  std::ofstream(file) << "on-alerts = 'true'\n";
  daemon_.Spawn({"--data-dir", folder_ + "/data", "--config", file});
  EXPECT_EQ(daemon_.Wait(), 2);
  daemon_.Spawn({"--data-dir", folder_ + "/data", "--config", file + ".no"});
  EXPECT_EQ(daemon_.Wait(), 2);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/data"));
}

}  // namespace
}  // namespace traincheck::server
