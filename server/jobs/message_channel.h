// Protobuf messages over a stream socket, each behind its length (four bytes,
// little-endian). The socket's buffer is the flow control: a sender waits
// until the other side reads.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_SERVER_JOBS_MESSAGE_CHANNEL_H_
#define TRAINCHECK_SERVER_JOBS_MESSAGE_CHANNEL_H_

#include <cstddef>
#include <functional>
#include <utility>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "google/protobuf/message_lite.h"

namespace traincheck::server {

class MessageChannel {
 public:
  // How often `waiting` is called while the other side does nothing.
  static constexpr absl::Duration kLookAround = absl::Milliseconds(100);

  // Takes the socket. `waiting` may be empty.
  MessageChannel(int fd, std::function<void()> waiting)
      : fd_(fd), waiting_(std::move(waiting)) {}
  ~MessageChannel();
  MessageChannel(const MessageChannel&) = delete;
  MessageChannel& operator=(const MessageChannel&) = delete;

  // Unavailable if the other side is gone; ResourceExhausted, naming size and
  // limit, for a message over kMaxWorkerMessageBytes, of which nothing is
  // sent.
  [[nodiscard]] absl::Status Send(const google::protobuf::MessageLite& message);

  // Unavailable as above, once everything that it said was received;
  // InvalidArgument for what is no such message.
  [[nodiscard]] absl::Status Receive(google::protobuf::MessageLite* message);

 private:
  absl::Status ReceiveBytes(char* to, size_t bytes);
  // Until the socket is ready for `events` or broken.
  absl::Status Await(short events);

  const int fd_;
  const std::function<void()> waiting_;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_JOBS_MESSAGE_CHANNEL_H_
