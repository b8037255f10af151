// Relays that are killed and replaced, as the agent does it.
#include <gtest/gtest.h>
#include <signal.h>

#include <filesystem>
#include <map>
#include <memory>
#include <random>
#include <string>
#include <thread>

#include "agent/relay/relay_fixture_for_testing.h"
#include "base/seed_for_testing.h"

namespace traincheck::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

// A relay that takes over as the agent's next one.
class TakeoverTest : public RelayFixture {
 protected:
  void Replace(WriterProcess* writer, Environment environment = {}) {
    kill(relay_->pid(), SIGKILL);
    ASSERT_TRUE(relay_->Wait(seconds(10)).has_value());
    environment["TRAINCHECK_RELAY_START"] = std::to_string(++start_);
    StartRelay(environment);
    ASSERT_EQ(writer->Do("reconnect " + relay_->socket_name()), "ok");
  }

  int start_ = 1;
};

TEST_F(TakeoverTest, NothingIsLostOrDoubledWhereverARelayIsKilled) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  const uint64_t seed = SeedForTesting(20240607);
  SCOPED_TRACE("TRAINCHECK_SEED=" + std::to_string(seed));
  std::mt19937_64 random(seed);
  constexpr int kKills = 50;
  constexpr size_t kMarks = 3000;
  for (int i = 0; i < kKills; ++i) {
    EXPECT_EQ(writer.Do("marks " + std::to_string(kMarks)), "ok");
    std::this_thread::sleep_for(milliseconds(random() % 60));
    if (i % 7 == 3) server_.reset();
    if (i % 7 == 6) StartServer();
    ASSERT_NO_FATAL_FAILURE(Replace(&writer));
  }
  StartServer();
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  writer.Kill();
  ExpectExit(0, seconds(30));
  ExpectComplete(pid, kKills * kMarks, v1::END_KIND_DIED);
  EXPECT_TRUE(store_.Get(pid).hello.resumes());
  EXPECT_TRUE(Spools().empty());
}

TEST_F(TakeoverTest, GoesOnWithTheSpoolAndTheRingsWhileTheServerIsAway) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  ASSERT_TRUE(WaitForMarks(pid, 1000));
  server_.reset();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  kill(relay_->pid(), SIGSTOP);
  EXPECT_EQ(writer.Do("marks 1000"), "ok");  // stays in the ring
  ASSERT_NO_FATAL_FAILURE(Replace(&writer));
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  ASSERT_EQ(Spools().size(), 1u);
  writer.Kill();
  EXPECT_FALSE(relay_->Wait(milliseconds(100)).has_value());
  StartServer();
  ExpectExit(0);
  ExpectComplete(pid, 4000, v1::END_KIND_DIED);
}

// The number by which a stream is taken over is in no name and no log.
TEST_F(TakeoverTest, GoesOnWithAFileOfAnEarlierName) {
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  ASSERT_EQ(Spools().size(), 1u);
  const std::filesystem::path file = Spools()[0];
  EXPECT_EQ(file.string().find(kImageOfWriter), std::string::npos);
  for (int i = 0; i < 1000 && relay_->Stderr().find(file) == std::string::npos;
       ++i) {
    std::this_thread::sleep_for(milliseconds(10));
  }
  EXPECT_NE(relay_->Stderr().find(file), std::string::npos);
  EXPECT_EQ(relay_->Stderr().find(kImageOfWriter), std::string::npos)
      << relay_->Stderr();
  kill(relay_->pid(), SIGSTOP);
  std::filesystem::rename(
      file, file.parent_path() / ("b007-" + std::to_string(pid) + "-77-" +
                                  kImageOfWriter + ".spool"));
  ASSERT_NO_FATAL_FAILURE(Replace(&writer));
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  EXPECT_EQ(Spools().size(), 1u);
  StartServer();
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 2000, v1::END_KIND_DIED);
  EXPECT_TRUE(Spools().empty());
}

TEST_F(TakeoverTest, ASecondRelayCanTellANewStoreAllDefinitions) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("strings 1000"), "ok");
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  ASSERT_TRUE(WaitForMarks(pid, 10));
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  server_.reset();
  ASSERT_NO_FATAL_FAILURE(Replace(&writer));
  StoreForTesting other("other");
  server_ = std::make_unique<IngestForTesting>(&other, address_, Behaviour());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  writer.Kill();
  ExpectExit(0);
  const StoredProcess stored = other.Get(pid);
  EXPECT_TRUE(stored.faults.empty());
  // What the first store was slow to acknowledge lies in the spool, too.
  const bool whole = stored.marks.size() == 20;
  ExpectMarks(stored.marks, whole ? 0 : 10, whole ? 20 : 10);
  using Missing = std::map<uint32_t, uint64_t>;
  EXPECT_EQ(stored.missing, whole ? Missing() : Missing({{1, 240}}));
  EXPECT_EQ(stored.records.at(0), 1001u);
}

TEST_F(TakeoverTest, AServerThatTellsNoPositionsGetsTheSpoolByItsNumbers) {
  StartServer({.tells_rings = false});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  ASSERT_TRUE(WaitForMarks(pid, 1000));
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  server_.reset();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  ASSERT_NO_FATAL_FAILURE(Replace(&writer));
  StartServer({.tells_rings = false});
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 2000, v1::END_KIND_DIED);
}

}  // namespace
}  // namespace traincheck::agent
