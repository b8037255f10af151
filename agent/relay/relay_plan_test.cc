// Capture plans on their way from the server to the processes of a run, through
// the real relay.
#include <gtest/gtest.h>

#include "agent/relay/relay_fixture_for_testing.h"

namespace traincheck::agent {
namespace {

using RelayPlanTest = RelayFixture;

IngestForTesting::Behaviour WithPlan(uint64_t version, const char* plan) {
  v1::PlanChange change;
  change.set_version(version);
  change.set_from_step(version * 10);
  change.set_plan(plan);
  return {.plan = change};
}

TEST_F(RelayPlanTest, AProcessGetsThePlanOfItsRun) {
  StartServer(WithPlan(1, "{\"format\": 1}"));
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("plan 50000"), "1 10 sealed {\"format\": 1}");
  EXPECT_EQ(writer.Do("plan 0"), "none");
  // Delivery does not notice.
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  writer.End();
  ExpectExit(0, std::chrono::seconds(50));
  ExpectComplete(pid, 1000, v1::END_KIND_DIED);
}

TEST_F(RelayPlanTest, ANewerOneFollowsAndTheSameDoesNotComeTwice) {
  StartServer(WithPlan(1, "one"));
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("plan 50000"), "1 10 sealed one");
  StartServer(WithPlan(1, "one"));
  EXPECT_EQ(writer.Do("marks 1"), "ok");
  ASSERT_TRUE(WaitForMarks(writer.pid(), 1));
  EXPECT_EQ(writer.Do("plan 0"), "none");
  StartServer(WithPlan(2, "two"));
  EXPECT_EQ(writer.Do("plan 50000"), "2 20 sealed two");
}

TEST_F(RelayPlanTest, OneThatComesWhileTheServerIsAwayGetsWhatOthersHeard) {
  StartServer(WithPlan(4, "four"));
  StartRelay();
  WriterProcess first(relay_->socket_name());
  EXPECT_EQ(first.Do("plan 50000"), "4 40 sealed four");
  server_.reset();
  WriterProcess second(relay_->socket_name());
  EXPECT_EQ(second.Do("plan 50000"), "4 40 sealed four");
}

}  // namespace
}  // namespace traincheck::agent
