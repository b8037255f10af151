// The relay as a whole: the real program, a real gRPC server, a real process
// that writes and dies.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "agent/relay/limits.h"
#include "agent/relay/relay_fixture_for_testing.h"
#include "agent/relay/spool_for_testing.h"
#include "agent/ring/ring_for_testing.h"
#include "base/sanitized.h"

namespace traincheck::agent {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Behaviour = IngestForTesting::Behaviour;
using RelayTest = RelayFixture;

TEST_F(RelayTest, DeliversEverythingAndEndsQuietly) {
  // As many as are delivered before anybody is warned that they are not yet.
  constexpr uint64_t kMarks = kThreadSanitized ? 30000 : 300000;
  address_ = "127.0.0.1:0";
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks " + std::to_string(kMarks)), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  ASSERT_TRUE(WaitForMarks(pid, kMarks));
  EXPECT_EQ(writer.Do("clean"), "ok");
  writer.End();
  ExpectExit(0);
  // The mark of the clean exit has the value 0 and comes last.
  StoredProcess stored = store_.Get(pid);
  ASSERT_EQ(stored.marks.size(), kMarks + 1);
  EXPECT_EQ(stored.goodbye->end(), v1::END_KIND_CLEAN);
  EXPECT_EQ(stored.hello.run(), "the-run");
  EXPECT_EQ(stored.hello.process().kind(), v1::PROCESS_KIND_MAIN);
  EXPECT_FALSE(stored.hello.resumes());
  EXPECT_GT(stored.reports.rings_size(), 0);
  EXPECT_EQ(server_->streams(), 1);
  EXPECT_EQ(relay_->Stderr(), "");
  EXPECT_TRUE(Spools().empty());
}

TEST_F(RelayTest, AKilledWriterLosesNothingThatItCommitted) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("forever"), "ok");
  ASSERT_TRUE(WaitForMarks(pid, 1000));
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, store_.Get(pid).marks.size(), v1::END_KIND_DIED);
}

TEST_F(RelayTest, RecordsArriveWhileTheWriterIsQuiet) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  ASSERT_TRUE(WaitForMarks(writer.pid(), 0));
  std::vector<std::chrono::steady_clock::duration> took;
  for (size_t count = 1; count <= 5; ++count) {
    writer.Do("marks 1");
    const auto begin = std::chrono::steady_clock::now();
    ASSERT_TRUE(WaitForMarks(writer.pid(), count));
    took.push_back(std::chrono::steady_clock::now() - begin);
  }
  // 50 ms in the ring; the rest, and the median, are for a loaded machine.
  std::sort(took.begin(), took.end());
  EXPECT_LT(took[2], milliseconds(500));
}

TEST_F(RelayTest, AServerThatManyShareGetsFewerBatches) {
  StartServer(Behaviour{.gather_ms = 2000});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  writer.Do("marks 1");
  ASSERT_TRUE(WaitForMarks(pid, 1));  // and with it the relay has the answer
  std::this_thread::sleep_for(milliseconds(100));
  const uint64_t before = store_.Get(pid).next_batch;
  for (int i = 0; i < 10; ++i) {
    writer.Do("marks 1");
    std::this_thread::sleep_for(2 * kMaxLie);
  }
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 11, v1::END_KIND_DIED);
  // Ten without it; one with it, and those before the answer was heard.
  EXPECT_LE(store_.Get(pid).next_batch - before, 6u);
}

TEST_F(RelayTest, AServerThatComesLateGetsEverything) {
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  for (int i = 0; i < 5; ++i) {  // more than the ring holds
    EXPECT_EQ(writer.Do("marks 100000"), "ok");
    EXPECT_EQ(writer.Do("drained 5000"), "yes");  // into the spool
  }
  ASSERT_EQ(Spools().size(), 1u);
  writer.Kill();
  EXPECT_FALSE(relay_->Wait(milliseconds(300)).has_value());
  StartServer();
  ExpectExit(0);
  ExpectComplete(pid, 500000, v1::END_KIND_DIED);
  EXPECT_TRUE(Spools().empty());
  const std::string said = relay_->Stderr();
  EXPECT_NE(said.find("not reachable"), std::string::npos) << said;
  EXPECT_EQ(said.find('\n'), said.size() - 1) << said;  // one line
}

TEST_F(RelayTest, AServerThatNeverComesLeavesASpoolFile) {
  StartRelay({{"TRAINCHECK_GRACE", "1"}});
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("clean"), "ok");
  const std::string name = "b007-" + std::to_string(writer.pid()) + "-77-";
  writer.End();
  ExpectExit(0, seconds(10));
  ASSERT_EQ(Spools().size(), 1u);
  // Behind it is the hash of the number that takes the stream over.
  EXPECT_THAT(Spools()[0], testing::StartsWith(folder_ + "/spool/" + name));
  const SpoolContents contents = ReadSpool(Spools()[0]).value();
  EXPECT_FALSE(contents.torn);
  EXPECT_EQ(contents.hello.run(), "the-run");
  ASSERT_TRUE(contents.goodbye.has_value());
  EXPECT_EQ(contents.goodbye->end(), v1::END_KIND_CLEAN);
  EXPECT_EQ(store_.Open(contents.hello).next_batch(), 0u);
  const uint32_t pid = contents.hello.process().pid();
  for (const v1::Batch& batch : contents.batches) store_.Put(pid, batch);
  EXPECT_EQ(store_.Get(static_cast<pid_t>(pid)).marks.size(), 1001u);
}

TEST_F(RelayTest, AServerThatIsKilledAndComesBackGetsEachRecordOnce) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  size_t count = 0;
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(writer.Do("marks 50000"), "ok");
    server_.reset();
    EXPECT_EQ(writer.Do("marks 50000"), "ok");
    StartServer();
    count += 100000;
    ASSERT_TRUE(WaitForMarks(pid, count));
  }
  EXPECT_TRUE(store_.Get(pid).hello.resumes());
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, count, v1::END_KIND_DIED);
  EXPECT_TRUE(Spools().empty());
}

TEST_F(RelayTest, ANewStoreGetsTheDefinitionsAndWhatIsStillHeld) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  ASSERT_TRUE(WaitForMarks(writer.pid(), 10));
  ASSERT_EQ(writer.Do("drained 5000"), "yes");
  server_.reset();
  StoreForTesting other("other");
  server_ = std::make_unique<IngestForTesting>(&other, address_, Behaviour());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  const pid_t pid = writer.pid();
  writer.Kill();
  ExpectExit(0);
  const StoredProcess stored = other.Get(pid);
  EXPECT_TRUE(stored.faults.empty());
  ExpectMarks(stored.marks, 10, 10);
  // What the other store has of the events is missing here; the definitions,
  // which the other has too, are not.
  EXPECT_EQ(stored.missing, (std::map<uint32_t, uint64_t>{{1, 240}}));
  EXPECT_EQ(stored.records.at(0), 1u);
  EXPECT_TRUE(stored.goodbye.has_value());
}

class HangingServerTest : public RelayTest,
                          public testing::WithParamInterface<Behaviour> {};

TEST_P(HangingServerTest, NeverStopsTheWriterAndIsLeftBehind) {
  StartServer(GetParam());
  StartRelay({{"TRAINCHECK_GRACE", "1"}});
  WriterProcess writer(relay_->socket_name());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(writer.Do("marks 100000"), "ok");
    EXPECT_EQ(writer.Do("drained 2000"), "yes");
  }
  writer.End();
  ExpectExit(0, seconds(10));
  ASSERT_EQ(Spools().size(), 1u);
  EXPECT_TRUE(ReadSpool(Spools()[0])->goodbye.has_value());
}

INSTANTIATE_TEST_SUITE_P(All, HangingServerTest,
                         testing::Values(Behaviour{.welcomes = false},
                                         Behaviour{.acknowledges = false},
                                         Behaviour{.credit_bytes = 0}));

TEST_F(RelayTest, ARefusedProcessIsFreedAndTheReasonSaidOnce) {
  StartServer({.refusal = grpc::Status(
                   grpc::StatusCode::FAILED_PRECONDITION,
                   "format versions 1..1 and 2..3 do not overlap")});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(writer.Do("marks 100000"), "ok");
    EXPECT_EQ(writer.Do("drained 2000"), "yes");
  }
  EXPECT_TRUE(relay_->running());
  writer.End();
  ExpectExit(0);
  const std::string said = relay_->Stderr();
  EXPECT_NE(said.find("do not overlap"), std::string::npos) << said;
  EXPECT_EQ(std::count(said.begin(), said.end(), '\n'), 2) << said;
  // And how much was lost: the marks and the definition of the process.
  EXPECT_NE(said.find("300001 records of process"), std::string::npos) << said;
  EXPECT_TRUE(Spools().empty());
  EXPECT_EQ(server_->streams(), 1);
}

// A daemon that was started again has a new token, and writes it as it begins
// to listen: who came with the old one comes again soon.
TEST_F(RelayTest, ATokenThatIsNotKnownYetIsTriedAgain) {
  StartServer({.refusal = grpc::Status(grpc::StatusCode::UNAUTHENTICATED,
                                       "the token is not known"),
               .refuses = 5});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 100"), "ok");
  EXPECT_TRUE(WaitForMarks(pid, 100));
  writer.End();
  ExpectExit(0);
  ExpectComplete(pid, 100, v1::END_KIND_DIED);
  EXPECT_EQ(server_->streams(), 6);
}

TEST_F(RelayTest, AnotherProgramInTheProcessIsItsEnd) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 100"), "ok");
  EXPECT_EQ(writer.Do("exec"), "ok");
  ExpectExit(0);
  EXPECT_EQ(kill(pid, 0), 0);
  ExpectComplete(pid, 100, v1::END_KIND_REPLACED);
  EXPECT_NE(store_.Get(pid).goodbye->ended_unix_ns(), 0u);
}

TEST_F(RelayTest, AClosedSocketIsNoEnd) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 100"), "ok");
  EXPECT_TRUE(WaitForMarks(pid, 100));
  EXPECT_EQ(writer.Do("close"), "ok");
  EXPECT_FALSE(relay_->Wait(milliseconds(200)).has_value());
  EXPECT_EQ(writer.Do("marks 100"), "ok");
  EXPECT_TRUE(WaitForMarks(pid, 200));
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 200, v1::END_KIND_DIED);
}

TEST_F(RelayTest, ABatchThatTheServerRefusesStopsNoOther) {
  StartServer({.hates_mark = 70000});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 200000"), "ok");
  EXPECT_EQ(writer.Do("drained 5000"), "yes");
  writer.End();
  ExpectExit(0);
  const StoredProcess stored = store_.Get(pid);
  EXPECT_TRUE(stored.faults.empty()) << stored.faults[0];
  ASSERT_TRUE(stored.goodbye.has_value());
  ASSERT_EQ(stored.missing.size(), 1u);
  EXPECT_LE(stored.missing.at(1), 512u << 10);  // one batch
  // The counters say what is lost.
  EXPECT_EQ(stored.records.at(1) + stored.missing.at(1) / 24, 200000u);
  EXPECT_EQ(stored.goodbye->rings(1).committed_records(), 200000u);
  EXPECT_NE(relay_->Stderr().find("not liked"), std::string::npos);
}

TEST_F(RelayTest, AVersionThatTheServerDoesNotSpeakIsSpooledAndToldOnce) {
  StartServer({.refusal = grpc::Status(
                   grpc::StatusCode::UNIMPLEMENTED,
                   "format versions 1..1 and 2..3 do not overlap")});
  StartRelay({{"TRAINCHECK_GRACE", "1"}});
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  EXPECT_EQ(writer.Do("drained 2000"), "yes");
  for (int i = 0; i < 200 && relay_->Stderr().empty(); ++i) {
    EXPECT_FALSE(relay_->Wait(milliseconds(10)).has_value());
  }
  writer.End();
  ExpectExit(0);
  const std::string said = relay_->Stderr();
  EXPECT_NE(said.find("do not overlap"), std::string::npos) << said;
  EXPECT_EQ(said.find("do not overlap"), said.rfind("do not overlap")) << said;
  ASSERT_EQ(Spools().size(), 1u);
  EXPECT_TRUE(ReadSpool(Spools()[0])->goodbye.has_value());
  EXPECT_EQ(server_->streams(), 1);
}

TEST_F(RelayTest, ServesAProcessAndItsChildren) {
  StartServer();
  StartRelay();
  WriterProcess parent(relay_->socket_name());
  const pid_t parent_pid = parent.pid();
  pid_t child_pid = 0;
  {
    WriterProcess child(relay_->socket_name());
    child_pid = child.pid();
    EXPECT_EQ(child.Do("marks 1000"), "ok");
    EXPECT_EQ(parent.Do("marks 2000"), "ok");
    child.Kill();
  }
  ASSERT_TRUE(store_.WaitFor(
      child_pid, [](const auto& p) { return p.goodbye.has_value(); },
      seconds(60)));
  EXPECT_TRUE(relay_->running());
  EXPECT_EQ(parent.Do("marks 1000"), "ok");
  parent.Kill();
  ExpectExit(0);
  ExpectComplete(child_pid, 1000, v1::END_KIND_DIED);
  ExpectComplete(parent_pid, 3000, v1::END_KIND_DIED);
}

// Sends `message`, with a file if there is one.
void SendGarbage(int socket, const std::string& message, int file) {
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof file)] = {};
  iovec part = {const_cast<char*>(message.data()), message.size()};
  msghdr header = {};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (file >= 0) {
    header.msg_control = control;
    header.msg_controllen = sizeof control;
    cmsghdr* rights = CMSG_FIRSTHDR(&header);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(sizeof file);
    std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  }
  EXPECT_GE(sendmsg(socket, &header, MSG_NOSIGNAL), 0);
}

std::string Bytes(const RingHandover& handover) {
  return std::string(reinterpret_cast<const char*>(&handover), sizeof handover);
}

TEST_F(RelayTest, GarbageHandoversHarmNobody) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  RingForTesting ring(1);
  RingHandover wrong_pid = ring.handover();
  wrong_pid.pid = 1;
  RingHandover wrong_magic = ring.handover();
  wrong_magic.magic = 7;
  RingHandover too_large = ring.handover();
  too_large.capacity_bytes *= 2;
  std::vector<UniqueFd> sockets;  // open: the relay must not wait for them
  const auto send = [&](const std::string& message, int file) {
    sockets.push_back(ConnectTo(relay_->socket_name()));
    SendGarbage(sockets.back().get(), message, file);
  };
  send("hello", -1);
  send("", -1);
  send(std::string(5000, 'x'), ring.fd());
  send(Bytes(ring.handover()), -1);
  send(Bytes(wrong_pid), ring.fd());
  send(Bytes(wrong_magic), ring.fd());
  send(Bytes(too_large), ring.fd());
  send(Bytes(ring.handover()), sockets[0].get());
  send(Bytes(ring.handover()), ring.fd());  // a ring, but nobody's identity
  ring.AppendRaw(std::string(64, '\xff'));
  sockets.push_back(ConnectTo(relay_->socket_name()));  // says nothing
  const pid_t pid = writer.pid();
  EXPECT_EQ(writer.Do("marks 1000"), "ok");
  writer.Kill();
  ASSERT_TRUE(store_.WaitFor(
      pid, [](const auto& p) { return p.goodbye.has_value(); }, seconds(60)));
  ExpectComplete(pid, 1000, v1::END_KIND_DIED);
  sockets.clear();
  ExpectExit(0);
  EXPECT_EQ(store_.size(), 1u);
}

TEST_F(RelayTest, WithoutDescriptorsItWaitsForSome) {
  StartServer();
  StartRelay();
  WriterProcess first(relay_->socket_name());
  ASSERT_TRUE(WaitForMarks(first.pid(), 0));
  rlimit before = {};
  ASSERT_EQ(prlimit(relay_->pid(), RLIMIT_NOFILE, nullptr, &before), 0);
  // As many as it polls: poll takes no more than may be open.
  const rlimit none = {.rlim_cur = 6, .rlim_max = before.rlim_max};
  ASSERT_EQ(prlimit(relay_->pid(), RLIMIT_NOFILE, &none, nullptr), 0);
  const UniqueFd waits = ConnectTo(relay_->socket_name());
  // Not read: a relay in a loop would write faster.
  const auto said = [&] {
    return std::filesystem::file_size(folder_ + "/relay.stderr");
  };
  for (int i = 0; i < 1000 && said() == 0; ++i) {
    EXPECT_FALSE(relay_->Wait(milliseconds(10)).has_value());
  }
  EXPECT_FALSE(relay_->Wait(milliseconds(500)).has_value());
  const size_t bytes = said();
  ASSERT_EQ(prlimit(relay_->pid(), RLIMIT_NOFILE, &before, nullptr), 0);
  EXPECT_GT(bytes, 0u);
  // A line or two. Without descriptors ThreadSanitizer reads no names, and
  // reports what is suppressed by its name.
  if (!kThreadSanitized) {
    EXPECT_LT(bytes, 500u);
  }
  WriterProcess second(relay_->socket_name());
  const pid_t pid = second.pid();
  EXPECT_EQ(second.Do("marks 10"), "ok");
  EXPECT_TRUE(WaitForMarks(pid, 10));
}

TEST_F(RelayTest, KeepsNothingOfWhatItInherited) {
  StartServer();
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  pollfd pipe = {relay_->inherited_pipe(), POLLIN, 0};
  ASSERT_EQ(poll(&pipe, 1, 5000), 1);
  EXPECT_NE(pipe.revents & POLLHUP, 0);
  for (int number : {SIGINT, SIGHUP, SIGPIPE}) kill(relay_->pid(), number);
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  const pid_t pid = writer.pid();
  writer.Kill();
  ExpectExit(0);
  ExpectComplete(pid, 10, v1::END_KIND_DIED);
}

TEST_F(RelayTest, LetsGoOfStderrWhenTheTrainingIsOver) {
  StartServer({.acknowledges = false});
  StartRelay();
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  EXPECT_EQ(writer.Do("drained 2000"), "yes");
  EXPECT_TRUE(relay_->HoldsStderr());
  writer.End();
  for (int i = 0; i < 200 && relay_->HoldsStderr(); ++i) {
    EXPECT_FALSE(relay_->Wait(milliseconds(10)).has_value());
  }
  EXPECT_FALSE(relay_->HoldsStderr());
  const std::string said = relay_->Stderr();
  EXPECT_NE(said.find(Spools().at(0)), std::string::npos) << said;
}

TEST_F(RelayTest, SigtermShortensTheGrace) {
  StartRelay({{"TRAINCHECK_GRACE", "600"}});
  WriterProcess writer(relay_->socket_name());
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  kill(relay_->pid(), SIGTERM);
  EXPECT_EQ(writer.Do("marks 10"), "ok");
  EXPECT_EQ(writer.Do("drained 2000"), "yes");
  writer.Kill();
  ExpectExit(0, seconds(60));
  ASSERT_EQ(Spools().size(), 1u);
  EXPECT_TRUE(ReadSpool(Spools()[0])->goodbye.has_value());
}

TEST_F(RelayTest, RefusesAddressesThatAreNotLocal) {
  StartRelay({{"TRAINCHECK_SERVER", "10.0.0.1:7471"}});
  ExpectExit(2);
  EXPECT_NE(relay_->Stderr().find("10.0.0.1:7471"), std::string::npos);
}

}  // namespace
}  // namespace traincheck::agent
