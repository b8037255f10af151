#include "server/jobs/message_channel.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "absl/strings/str_cat.h"
#include "server/jobs/limits.h"

namespace traincheck::server {
namespace {

constexpr size_t kLengthBytes = 4;

// Not an end of the channel: a signal came, or the socket is full or empty just
// now.
bool TryAgain(int error) {
  return error == EINTR || error == EAGAIN || error == EWOULDBLOCK;
}

// Unavailable is what callers take for the death of the other process; they
// then ask how it ended (LearningSession::WhyGone).
absl::Status Gone(const std::string& how) {
  return absl::UnavailableError(
      absl::StrCat("the other side of the socket is gone (", how, ")"));
}

absl::Status TooLarge(uint64_t bytes) {
  return absl::ResourceExhaustedError(absl::StrCat(
      "a message of ", bytes, " bytes, the limit is ", kMaxWorkerMessageBytes));
}

}  // namespace

MessageChannel::~MessageChannel() { close(fd_); }

absl::Status MessageChannel::Await(short events) {
  pollfd poller = {.fd = fd_, .events = events, .revents = 0};
  const int patience_ms =
      waiting_ ? static_cast<int>(absl::ToInt64Milliseconds(kLookAround)) : -1;
  while (true) {
    // Errors and hang-ups end it, too: send and recv then say which.
    const int ready = poll(&poller, 1, patience_ms);
    if (ready > 0) return absl::OkStatus();
    if (ready < 0 && errno != EINTR) return Gone(strerror(errno));
    if (waiting_) waiting_();
  }
}

absl::Status MessageChannel::Send(
    const google::protobuf::MessageLite& message) {
  const size_t size = message.ByteSizeLong();
  // Before anything is sent: behind half a message the other side could not
  // find the next one.
  if (size > kMaxWorkerMessageBytes) return TooLarge(size);
  std::string bytes(kLengthBytes, '\0');
  for (size_t i = 0; i < kLengthBytes; ++i) {
    bytes[i] = static_cast<char>(size >> (8 * i));
  }
  // One buffer for length and message, so that a short message takes one send.
  message.AppendToString(&bytes);
  for (size_t sent = 0; sent < bytes.size();) {
    // Never blocking, so that `waiting_` is called meanwhile; and without
    // SIGPIPE, because the other side may die at any moment.
    const ssize_t n = send(fd_, bytes.data() + sent, bytes.size() - sent,
                           MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n >= 0) {
      sent += static_cast<size_t>(n);
    } else if (!TryAgain(errno)) {
      return Gone(strerror(errno));
    } else if (absl::Status s = Await(POLLOUT); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

// An end in the middle of a message is an end like any other: the rest will not
// come.
absl::Status MessageChannel::ReceiveBytes(char* to, size_t bytes) {
  for (size_t received = 0; received < bytes;) {
    const ssize_t n = recv(fd_, to + received, bytes - received, MSG_DONTWAIT);
    if (n > 0) {
      received += static_cast<size_t>(n);
    } else if (n == 0) {
      return Gone("closed");
    } else if (!TryAgain(errno)) {
      return Gone(strerror(errno));
    } else if (absl::Status s = Await(POLLIN); !s.ok()) {
      return s;
    }
  }
  return absl::OkStatus();
}

absl::Status MessageChannel::Receive(google::protobuf::MessageLite* message) {
  unsigned char length[kLengthBytes];
  absl::Status status =
      ReceiveBytes(reinterpret_cast<char*>(length), kLengthBytes);
  if (!status.ok()) return status;
  uint32_t size = 0;
  for (size_t i = 0; i < kLengthBytes; ++i) {
    size |= static_cast<uint32_t>(length[i]) << (8 * i);
  }
  if (size > kMaxWorkerMessageBytes) {
    // Before memory is taken for it: the length is the other side's word.
    return absl::InvalidArgumentError(TooLarge(size).message());
  }
  std::string bytes(size, '\0');
  status = ReceiveBytes(bytes.data(), size);
  if (!status.ok()) return status;
  if (!message->ParseFromString(bytes)) {
    return absl::InvalidArgumentError(
        absl::StrCat("what it said is not a ", message->GetTypeName()));
  }
  return absl::OkStatus();
}

}  // namespace traincheck::server
