#include "agent/relay/handover.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

namespace traincheck::agent {
namespace {

class HandoverTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends_), 0);
  }
  void TearDown() override {
    ClosePeer();
    close(ends_[0]);
  }

  int relay() const { return ends_[0]; }
  void ClosePeer() {
    if (ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

  // Sends `size` bytes with a file, as an agent does.
  void Send(const void* bytes, size_t size) {
    const int memory = memfd_create("ring", MFD_CLOEXEC);
    iovec part = {const_cast<void*>(bytes), size};
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
    std::memcpy(CMSG_DATA(header), &memory, sizeof memory);
    ASSERT_EQ(sendmsg(ends_[1], &message, MSG_NOSIGNAL),
              static_cast<ssize_t>(size));
    close(memory);
  }
  void SendRing(uint32_t ring) {
    RingHandover handover = {};
    handover.ring = ring;
    Send(&handover, sizeof handover);
  }

 private:
  int ends_[2] = {-1, -1};
};

TEST_F(HandoverTest, NothingWaitsYet) {
  const auto received = ReceiveHandover(relay());
  ASSERT_TRUE(received.ok());
  EXPECT_FALSE(received->has_value());
}

TEST_F(HandoverTest, MessageAndFileArrive) {
  SendRing(7);
  const auto received = ReceiveHandover(relay());
  ASSERT_TRUE(received.ok() && received->has_value());
  EXPECT_EQ((*received)->message.ring, 7u);
}

TEST_F(HandoverTest, WrongSizeIsNoHandover) {
  Send("short", 5);
  EXPECT_EQ(ReceiveHandover(relay()).status().code(),
            absl::StatusCode::kInvalidArgument);
}

// Answers that nobody read reset the connection when the agent is killed; the
// rings that it had sent must be taken all the same.
TEST_F(HandoverTest, RingsOfAPeerThatDiedWithAnswersUnreadAreTaken) {
  SendRing(1);
  SendRing(2);
  AnswerHasRing(relay());
  ClosePeer();
  for (uint32_t ring : {1, 2}) {
    const auto received = ReceiveHandover(relay());
    ASSERT_TRUE(received.ok() && received->has_value()) << received.status();
    EXPECT_EQ((*received)->message.ring, ring);
  }
  EXPECT_EQ(ReceiveHandover(relay()).status().code(),
            absl::StatusCode::kOutOfRange);
}

}  // namespace
}  // namespace traincheck::agent
