#include "server/jobs/message_channel.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <optional>
#include <string>
#include <thread>

#include "absl/time/clock.h"
#include "server/jobs/limits.h"
#include "server/jobs/worker.pb.h"

namespace traincheck::server {
namespace {

using testing::HasSubstr;

class MessageChannelTest : public testing::Test {
 protected:
  MessageChannelTest() {
    int sockets[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, sockets), 0);
    here_.emplace(sockets[0], nullptr);
    there_.emplace(sockets[1], [this] { ++waited_; });
    raw_ = sockets[0];
  }

  worker::ToWorker Message(size_t bytes) {
    worker::ToWorker message;
    message.mutable_batch()->set_value(std::string(bytes, 'x'));
    return message;
  }

  int raw_ = -1;
  int waited_ = 0;
  std::optional<MessageChannel> here_;
  std::optional<MessageChannel> there_;
};

// Far more than a socket's buffer holds: the sender waits for the reader.
TEST_F(MessageChannelTest, MessagesArriveWholeAndInOrder) {
  std::thread sender([this] {
    for (size_t i = 0; i < 50; ++i) {
      ASSERT_TRUE(here_->Send(Message(i << 14)).ok());
    }
  });
  for (size_t i = 0; i < 50; ++i) {
    worker::ToWorker message;
    ASSERT_TRUE(there_->Receive(&message).ok());
    EXPECT_EQ(message.batch().value().size(), i << 14);
  }
  sender.join();
}

TEST_F(MessageChannelTest, WhatWasSaidIsReceivedAfterTheOtherSideHasGone) {
  ASSERT_TRUE(here_->Send(Message(10)).ok());
  // Unread in the other direction, as when a process dies while it is fed.
  ASSERT_TRUE(there_->Send(Message(10)).ok());
  here_.reset();
  worker::ToWorker message;
  absl::Status sent;
  while (sent.ok()) sent = there_->Send(Message(1000));
  EXPECT_EQ(sent.code(), absl::StatusCode::kUnavailable);
  EXPECT_TRUE(there_->Receive(&message).ok());
  EXPECT_EQ(there_->Receive(&message).code(), absl::StatusCode::kUnavailable);
}

TEST_F(MessageChannelTest, OverTheLimitNothingIsSent) {
  const absl::Status sent = here_->Send(Message(kMaxWorkerMessageBytes));
  EXPECT_EQ(sent.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(sent.message()), HasSubstr("the limit is 67108864"));
  ASSERT_TRUE(here_->Send(Message(3)).ok());
  worker::ToWorker message;
  ASSERT_TRUE(there_->Receive(&message).ok());
  EXPECT_EQ(message.batch().value().size(), 3u);
}

TEST_F(MessageChannelTest, GarbageIsAnError) {
  ASSERT_EQ(write(raw_, "\xff\xff\xff\xff", 4), 4);
  worker::ToWorker message;
  EXPECT_EQ(there_->Receive(&message).code(),
            absl::StatusCode::kInvalidArgument);
  ASSERT_EQ(write(raw_, "\x03\x00\x00\x00\xff\xff\xff", 7), 7);
  EXPECT_THAT(std::string(there_->Receive(&message).message()),
              HasSubstr("not a traincheck.worker.ToWorker"));
}

TEST_F(MessageChannelTest, ItLooksAroundWhileItWaits) {
  std::thread sender([this] {
    absl::SleepFor(3 * MessageChannel::kLookAround);
    ASSERT_TRUE(here_->Send(Message(1)).ok());
  });
  worker::ToWorker message;
  EXPECT_TRUE(there_->Receive(&message).ok());
  EXPECT_GE(waited_, 1);
  sender.join();
}

}  // namespace
}  // namespace traincheck::server
