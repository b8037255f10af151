#include "agent/capture/relay_link.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agent/capture/relay_process.h"
#include "agent/ring/ring_abi.h"

namespace traincheck {
namespace {

constexpr int kBacklog = 128;
// Above what programs use by number.
constexpr int kLowestDescriptor = 100;

int SeqpacketSocket() {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

std::string Failed(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

// Binds to an abstract address of the kernel's choice.
std::string BindAnywhere(int socket) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  if (bind(socket, any, sizeof(sa_family_t)) != 0) return "";
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "";
  }
  return std::string(address.sun_path, size - offsetof(sockaddr_un, sun_path));
}

uint64_t SocketCookie(int socket) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

}  // namespace

std::string RelayLink::Start(const std::string& program) {
  const int listener = SeqpacketSocket();
  if (listener < 0) return Failed("socket");
  std::string error;
  address_ = BindAnywhere(listener);
  if (address_.empty() || listen(listener, kBacklog) != 0) {
    error = Failed("listen");
  } else if (const int code = StartRelay(program, listener); code != 0) {
    error = program + ": " + std::strerror(code);
  } else {
    error = Connect();
  }
  // The relay's copy is the only one now: when it dies, connections fail.
  close(listener);
  return error;
}

std::string RelayLink::Join(const std::string& address) {
  address_ = address;
  return Connect();
}

std::string RelayLink::Connect() {
  const int low = SeqpacketSocket();
  if (low < 0) return Failed("socket");
  socket_ = fcntl(low, F_DUPFD_CLOEXEC, kLowestDescriptor);
  if (socket_ < 0) socket_ = low;
  if (socket_ != low) close(low);
  cookie_ = SocketCookie(socket_);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(),
              std::min(address_.size(), sizeof address.sun_path));
  const socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), size) !=
      0) {
    const std::string error = Failed("the relay does not answer");
    close(socket_);
    socket_ = -1;
    return error;
  }
  return "";
}

bool RelayLink::OwnsDescriptor() const {
  return socket_ >= 0 && SocketCookie(socket_) == cookie_;
}

void RelayLink::HandOver(RingWriter* ring) {
  waiting_.push_back(ring);
  Retry();
}

void RelayLink::ReadAnswers() {
  char answer[16];
  while (OwnsDescriptor() &&
         recv(socket_, answer, sizeof answer, MSG_DONTWAIT) > 0) {
  }
}

void RelayLink::Retry() {
  ReadAnswers();
  while (!waiting_.empty() && Send(waiting_.front())) {
    waiting_.front()->CloseFile();
    waiting_.erase(waiting_.begin());
  }
}

bool RelayLink::Send(RingWriter* ring) {
  if (!OwnsDescriptor()) return false;
  RingHandover handover = ring->handover();
  iovec data = {&handover, sizeof handover};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int fd = ring->fd();
  std::memcpy(CMSG_DATA(rights), &fd, sizeof fd);
  return sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof handover);
}

bool RelayLink::alive() const {
  if (!OwnsDescriptor()) return false;
  pollfd state = {socket_, 0, 0};
  return poll(&state, 1, 0) >= 0 && (state.revents & (POLLHUP | POLLERR)) == 0;
}

void RelayLink::Abandon() {
  if (OwnsDescriptor()) close(socket_);
  socket_ = -1;
}

}  // namespace traincheck
