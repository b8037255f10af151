// A relay with nothing to do. Slow by nature: the tests wait.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "agent/relay/harness_for_testing.h"
#include "agent/relay/ingest_for_testing.h"

namespace traincheck::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class RelayIdleTest : public testing::Test {
 protected:
  RelayIdleTest()
      : folder_(testing::TempDir() + "/relay-idle-" + std::to_string(getpid())),
        server_(&store_, "127.0.0.1:0", {}) {
    std::filesystem::create_directories(folder_);
    relay_ = std::make_unique<RelayProcess>(
        folder_, Environment{{"TRAINCHECK_SERVER", server_.address()}});
  }
  ~RelayIdleTest() override {
    relay_.reset();
    std::filesystem::remove_all(folder_);
  }

  const std::string folder_;
  StoreForTesting store_{"store"};
  IngestForTesting server_;
  std::unique_ptr<RelayProcess> relay_;
};

TEST_F(RelayIdleTest, EndsWhenNobodyComes) {
  EXPECT_FALSE(relay_->Wait(seconds(9)).has_value());
  EXPECT_EQ(relay_->Wait(seconds(5)), std::optional<int>(0));
  EXPECT_EQ(server_.streams(), 0);
}

TEST_F(RelayIdleTest, CostsNextToNothingWhileTheTrainingIsQuiet) {
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  EXPECT_FALSE(relay_->Wait(seconds(5)).has_value());
  writer.End();
  EXPECT_EQ(relay_->Wait(seconds(5)), std::optional<int>(0));
  EXPECT_EQ(store_.size(), 1u);
  RecordProperty("cpu_us", static_cast<int>(relay_->cpu_time().count()));
  // It takes some 50 ms, start and end included, instrumented 200: ten times
  // as much is not next to nothing. One that turns in a loop takes 5 s.
  EXPECT_LT(relay_->cpu_time(), milliseconds(2000));
}

TEST_F(RelayIdleTest, TellsThatALivingProcessRecordsNothing) {
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  ASSERT_TRUE(store_.WaitFor(
      pid,
      [](const StoredProcess& process) { return !process.quiet_ns.empty(); },
      seconds(100)));
  // What it records then comes as before.
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  writer.End();
  EXPECT_EQ(relay_->Wait(seconds(5)), std::optional<int>(0));
  const StoredProcess process = store_.Get(pid);
  EXPECT_THAT(process.faults, testing::IsEmpty());
  EXPECT_EQ(process.marks.size(), 20u);
  EXPECT_TRUE(process.goodbye.has_value());
}

}  // namespace
}  // namespace traincheck::agent
