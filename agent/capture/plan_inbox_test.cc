#include "agent/capture/plan_inbox.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include "agent/ring/ring_abi.h"

namespace traincheck::agent {
namespace {

constexpr int kSealed = F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW;

size_t OpenFiles() {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry :
       std::filesystem::directory_iterator("/proc/self/fd")) {
    ++count;
  }
  return count;
}

class PlanInboxTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK, 0, sockets_),
              0);
    open_files_ = OpenFiles();
  }
  void TearDown() override {
    // Of what came none stays open.
    EXPECT_EQ(OpenFiles(), open_files_);
    close(sockets_[0]);
    close(sockets_[1]);
  }

  static int Memory(const std::string& text, int seals = kSealed) {
    const int file = memfd_create("plan", MFD_CLOEXEC | MFD_ALLOW_SEALING);
    EXPECT_EQ(write(file, text.data(), text.size()),
              static_cast<ssize_t>(text.size()));
    EXPECT_EQ(fcntl(file, F_ADD_SEALS, seals), 0);
    return file;
  }

  // Closes the files.
  void SendBytes(const void* bytes, size_t size, std::vector<int> files) {
    iovec data = {const_cast<void*>(bytes), size};
    alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
    msghdr message = {};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!files.empty()) {
      message.msg_control = control;
      message.msg_controllen = CMSG_SPACE(files.size() * sizeof(int));
      cmsghdr* rights = CMSG_FIRSTHDR(&message);
      rights->cmsg_level = SOL_SOCKET;
      rights->cmsg_type = SCM_RIGHTS;
      rights->cmsg_len = CMSG_LEN(files.size() * sizeof(int));
      std::memcpy(CMSG_DATA(rights), files.data(), files.size() * sizeof(int));
    }
    ASSERT_EQ(sendmsg(sockets_[0], &message, 0), static_cast<ssize_t>(size));
    for (const int file : files) close(file);
  }
  void Send(const PlanMessage& message, std::vector<int> files) {
    SendBytes(&message, sizeof message, std::move(files));
  }
  void SendPlan(uint64_t version, const std::string& text) {
    Send(Message(version, text.size()), {Memory(text)});
  }
  static PlanMessage Message(uint64_t version, size_t bytes) {
    return {{'P', 'L', 'A', 'N'}, static_cast<uint32_t>(bytes), version, 40};
  }

  std::optional<PlanChange> Read() {
    while (inbox_.Receive(sockets_[1])) {
    }
    return inbox_.Take();
  }

  int sockets_[2];
  size_t open_files_ = 0;
  PlanInbox inbox_;
};

TEST_F(PlanInboxTest, NothingWaits) { EXPECT_FALSE(Read()); }

TEST_F(PlanInboxTest, AnAnswerIsNoPlan) {
  SendBytes(&kRelayHasRing, sizeof kRelayHasRing, {});
  EXPECT_FALSE(Read());
}

TEST_F(PlanInboxTest, APlanIsTakenOnce) {
  SendPlan(3, "{\"format\": 1}");
  const auto change = Read();
  ASSERT_TRUE(change);
  EXPECT_EQ(change->version, 3u);
  EXPECT_EQ(change->from_step, 40u);
  EXPECT_EQ(change->json, "{\"format\": 1}");
  EXPECT_FALSE(Read());
}

TEST_F(PlanInboxTest, TheNewestReplacesOneThatWaits) {
  SendPlan(3, "three");
  SendPlan(5, "five");
  SendPlan(4, "four");
  EXPECT_EQ(Read()->json, "five");
  // A relay sends its plan again.
  SendPlan(5, "five");
  EXPECT_FALSE(Read());
  SendPlan(6, "six");
  EXPECT_EQ(Read()->json, "six");
}

TEST_F(PlanInboxTest, WhatIsMalformedIsRefused) {
  const PlanMessage message = Message(3, 4);
  SendBytes(&message, 12, {Memory("plan")});
  EXPECT_FALSE(Read());
  char longer[40] = {};
  std::memcpy(longer, &message, sizeof message);
  SendBytes(longer, sizeof longer, {Memory("plan")});
  EXPECT_FALSE(Read());
  Send(message, {});
  EXPECT_FALSE(Read());
  Send(message, {Memory("plan"), Memory("plan")});
  EXPECT_FALSE(Read());
  Send(message, {Memory("plan"), Memory("a"), Memory("a"), Memory("a"),
                 Memory("a"), Memory("a")});
  EXPECT_FALSE(Read());
  Send(message, {Memory("longer")});
  EXPECT_FALSE(Read());
  Send(Message(3, 0), {Memory("")});
  EXPECT_FALSE(Read());
}

TEST_F(PlanInboxTest, OnlySealedMemoryIsRead) {
  Send(Message(3, 4), {Memory("plan", F_SEAL_SHRINK)});
  EXPECT_FALSE(Read());
  // Reading from a pipe would wait.
  int pipe_ends[2];
  ASSERT_EQ(pipe(pipe_ends), 0);
  Send(Message(3, 4), {pipe_ends[0]});
  EXPECT_FALSE(Read());
  close(pipe_ends[1]);
}

TEST_F(PlanInboxTest, OneMebibyteIsAllowed) {
  const std::string most(kMaxPlanBytes, ' ');
  SendPlan(2, most + " ");
  EXPECT_FALSE(Read());
  // What was refused does not count as the newest.
  SendPlan(1, most);
  EXPECT_EQ(Read()->json.size(), kMaxPlanBytes);
}

TEST_F(PlanInboxTest, TheOtherEndMayBeGone) {
  SendPlan(3, "plan");
  shutdown(sockets_[0], SHUT_RDWR);
  EXPECT_EQ(Read()->json, "plan");
  EXPECT_FALSE(Read());
}

}  // namespace
}  // namespace traincheck::agent
