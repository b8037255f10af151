// Peers on the relay's socket that mean harm: the real relay must go on for
// the others.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/relay/harness_for_testing.h"
#include "agent/relay/ingest_for_testing.h"
#include "agent/ring/ring_for_testing.h"

namespace traincheck::agent {
namespace {

using std::chrono::seconds;

constexpr uid_t kNobody = 65534;

class RelayHostileTest : public testing::Test {
 protected:
  RelayHostileTest() {
    // Under /tmp, because the path of a unix socket must be short.
    char name[] = "/tmp/relay-test-XXXXXX";
    folder_ = mkdtemp(name);
    server_ = std::make_unique<IngestForTesting>(
        &store_, "unix:" + folder_ + "/server", IngestForTesting::Behaviour{});
    relay_ = std::make_unique<RelayProcess>(
        folder_, Environment{{"TRAINCHECK_SERVER", server_->address()}});
  }
  ~RelayHostileTest() override {
    server_.reset();
    relay_.reset();
    std::filesystem::remove_all(folder_);
  }

  // An honest process beside it is served to its end.
  void ExpectServes() {
    WriterProcess writer(relay_->socket_name());
    const pid_t pid = writer.pid();
    EXPECT_EQ(writer.Do("marks 1000"), "ok");
    writer.Kill();
    EXPECT_TRUE(store_.WaitFor(
        pid, [](const auto& p) { return p.goodbye.has_value(); }, seconds(50)))
        << relay_->Stderr();
    EXPECT_EQ(store_.Get(pid).marks.size(), 1000u);
    // It may have ended: with the honest process nobody is left.
    EXPECT_EQ(relay_->Wait(std::chrono::milliseconds(0)).value_or(0), 0)
        << relay_->Stderr();
  }

  void HandOver(int socket, const RingHandover& handover, int file) {
    iovec part = {const_cast<RingHandover*>(&handover), sizeof handover};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &file, sizeof file);
    ASSERT_EQ(sendmsg(socket, &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(sizeof handover));
  }

  bool Answered(int socket) {
    uint32_t answer = 0;
    timeval patience = {.tv_sec = 1, .tv_usec = 0};
    setsockopt(socket, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    return recv(socket, &answer, sizeof answer, 0) == sizeof answer &&
           answer == kRelayHasRing;
  }

  std::string folder_;
  StoreForTesting store_{"store"};
  std::unique_ptr<IngestForTesting> server_;
  std::unique_ptr<RelayProcess> relay_;
};

// A mapped file that becomes shorter would end the relay by SIGBUS.
TEST_F(RelayHostileTest, AFileThatMayShrinkIsRefused) {
  RingForTesting ring(0);
  const size_t bytes = kRingHeaderBytes + ring.handover().capacity_bytes;
  const UniqueFd file(memfd_create("ring", MFD_CLOEXEC));  // cannot be sealed
  ASSERT_EQ(ftruncate(file.get(), static_cast<off_t>(bytes)), 0);
  ASSERT_EQ(pwrite(file.get(), &ring.header(), sizeof(RingHeader), 0),
            static_cast<ssize_t>(sizeof(RingHeader)));
  const UniqueFd socket = ConnectTo(relay_->socket_name());
  HandOver(socket.get(), ring.handover(), file.get());
  EXPECT_FALSE(Answered(socket.get()));
  ASSERT_EQ(ftruncate(file.get(), 0), 0);
  ExpectServes();
  EXPECT_NE(relay_->Stderr().find("may shrink"), std::string::npos)
      << relay_->Stderr();
}

TEST_F(RelayHostileTest, ARingThatWasTakenCannotShrink) {
  RingForTesting ring(0);
  const UniqueFd socket = ConnectTo(relay_->socket_name());
  HandOver(socket.get(), ring.handover(), ring.fd());
  ASSERT_TRUE(Answered(socket.get())) << relay_->Stderr();
  EXPECT_NE(ftruncate(ring.fd(), 0), 0);
  ExpectServes();
}

TEST_F(RelayHostileTest, AnotherUserIsRefused) {
  constexpr int kCannot = 2;
  const pid_t other = fork();
  if (other == 0) {
    if (setresuid(kNobody, kNobody, kNobody) != 0) _exit(kCannot);
    const UniqueFd socket = ConnectTo(relay_->socket_name());
    // The relay closes it without a word.
    char byte;
    _exit(recv(socket.get(), &byte, 1, 0) <= 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(other, &status, 0), other);
  if (WEXITSTATUS(status) == kCannot) {
    GTEST_SKIP() << "cannot become somebody else here";
  }
  EXPECT_EQ(status, 0);
  ExpectServes();
  EXPECT_NE(relay_->Stderr().find("a process of user 65534"), std::string::npos)
      << relay_->Stderr();
}

// They never send and never leave. No honest process waits for them.
TEST_F(RelayHostileTest, SilentPeersDelayNobody) {
  std::vector<UniqueFd> silent;
  for (int i = 0; i < 200; ++i) {
    silent.push_back(ConnectTo(relay_->socket_name()));
  }
  ExpectServes();
}

}  // namespace
}  // namespace traincheck::agent
