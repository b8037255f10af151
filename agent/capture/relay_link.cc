#include "agent/capture/relay_link.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>

#include "agent/capture/log.h"
#include "agent/capture/relay_process.h"
#include "agent/ring/descriptors.h"
#include "agent/ring/ring_abi.h"

namespace traincheck::agent {
namespace {

// Forked workers connect at once by the dozen; a full backlog makes a worker
// start a relay of its own.
constexpr int kBacklog = 128;

int SeqpacketSocket() {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
}

std::string Failed(const char* what) {
  return std::string(what) + ": " + std::strerror(errno);
}

// Binds to an abstract address that the kernel chooses, so that no two
// processes need to agree and no file is left.
std::string BindAnywhere(int socket) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  const auto* any = reinterpret_cast<const sockaddr*>(&address);
  // A name of no bytes: the kernel chooses one (unix(7), autobind).
  if (bind(socket, any, sizeof(sa_family_t)) != 0) return "";
  socklen_t size = sizeof address;
  if (getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    return "";
  }
  return std::string(address.sun_path, size - offsetof(sockaddr_un, sun_path));
}

// The kernel gives each socket a cookie, which no other socket on this host has
// had.
uint64_t SocketCookie(int socket) {
  uint64_t cookie = 0;
  socklen_t size = sizeof cookie;
  if (getsockopt(socket, SOL_SOCKET, SO_COOKIE, &cookie, &size) != 0) return 0;
  return cookie;
}

}  // namespace

std::string RelayLink::Start(const std::string& program) {
  return StartNumber(program, 1);
}

std::string RelayLink::Restart(const std::string& program) {
  // Counted before it is tried: a start that fails uses up a try as well.
  ++restarts_;
  if (OwnsDescriptor()) close(socket_);
  socket_ = -1;
  std::string error = StartNumber(program, 1 + restarts_);
  if (!error.empty()) return error;
  // All rings again, and in the order in which they were made: the definitions
  // first.
  sent_ = 0;
  SendWaiting();
  return "";
}

// The listener exists before the relay starts, so that connecting succeeds at
// once: the connection waits in the backlog until the relay accepts it.
std::string RelayLink::StartNumber(const std::string& program, int number) {
  const int listener = SeqpacketSocket();
  if (listener < 0) return Failed("socket");
  std::string error;
  address_ = BindAnywhere(listener);
  // What the kernel notes at listen() and shows to whoever connects.
  maker_pid_ = static_cast<uint32_t>(getpid());
  maker_uid_ = geteuid();
  if (address_.empty() || listen(listener, kBacklog) != 0) {
    error = Failed("listen");
  } else if (const int code = StartRelay(program, listener, number);
             code != 0) {
    error = program + ": " + std::strerror(code);
  } else {
    error = Connect();
  }
  // The relay's copy is the only one now: when it dies, connections fail.
  close(listener);
  return error;
}

// The ancestor's memory is a copy that nobody changes, so its address can be
// read freely.
std::string RelayLink::Join(const RelayLink& ancestor) {
  address_ = ancestor.address_;
  maker_pid_ = ancestor.maker_pid_;
  maker_uid_ = ancestor.maker_uid_;
  return Connect();
}

std::string RelayLink::Connect() {
  socket_ = SeqpacketSocket();
  if (socket_ < 0) return Failed("socket");
  socket_ = MoveUp(socket_);
  cookie_ = SocketCookie(socket_);
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, address_.data(),
              std::min(address_.size(), sizeof address.sun_path));
  const socklen_t size =
      static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + address_.size());
  std::string error;
  // The socket does not block, so a relay whose backlog is full is one that
  // does not answer.
  if (connect(socket_, reinterpret_cast<const sockaddr*>(&address), size) !=
      0) {
    error = Failed("the relay does not answer");
  } else {
    error = CheckListener();
  }
  if (!error.empty()) {
    close(socket_);
    socket_ = -1;
  }
  return error;
}

// The peer's identity is taken from the kernel and not from a message. A
// stranger at the address would get the rings' files, which show names and
// values of the training.
std::string RelayLink::CheckListener() const {
  ucred listener = {};
  socklen_t size = sizeof listener;
  if (getsockopt(socket_, SOL_SOCKET, SO_PEERCRED, &listener, &size) != 0) {
    return Failed("SO_PEERCRED");
  }
  // Seen from another user's namespace our own number is another one too. Pid
  // 0: the maker is in a pid namespace that is not to be seen from here.
  const bool same_process =
      listener.pid == 0 || static_cast<uint32_t>(listener.pid) == maker_pid_;
  if (same_process && listener.uid == geteuid()) return "";
  // A server that drops privileges: that relay would refuse us.
  if (same_process && listener.uid == maker_uid_) {
    return "the relay serves another user";
  }
  LogOnce("listener", "process " + std::to_string(listener.pid) + " of user " +
                          std::to_string(listener.uid) +
                          " answers at the address of a relay that has died: "
                          "it gets nothing, a relay of our own is started");
  return "another process has the address of the relay";
}

bool RelayLink::OwnsDescriptor() const {
  return socket_ >= 0 && SocketCookie(socket_) == cookie_;
}

void RelayLink::HandOver(RingWriter* ring) {
  rings_.push_back(ring);
  SendWaiting();
}

// The messages are read even if nobody needs them: at the end the relay would
// otherwise see a reset instead of an end.
void RelayLink::ReadMessages() {
  while (OwnsDescriptor() && inbox_.Receive(socket_)) {
  }
}

RelayLink::State RelayLink::Tend() {
  bool has_messages = false;
  const State state = Look(&has_messages);
  if (state != State::kAlive) return state;
  if (has_messages) ReadMessages();
  if (sent_ < rings_.size()) SendWaiting();
  return state;
}

// Rings go in their order, the definitions first, and a ring that cannot be
// sent now ends the loop.
void RelayLink::SendWaiting() {
  while (sent_ < rings_.size()) {
    RingWriter& ring = *rings_[sent_];
    const int file = ring.fd();
    if (file < 0) {
      // Counted as sent, so that rings behind it still go.
      LogOnce("ring file",
              "the program has closed files of traincheck: records of some "
              "threads cannot be delivered by another relay");
    } else if (!Send(file, ring)) {
      return;
    } else if (file < kLowestDescriptor) {
      // Down there every number is the program's.
      ring.CloseFile();
    }
    ++sent_;
  }
}

// The descriptor travels with the message (SCM_RIGHTS); the relay gets one of
// its own.
bool RelayLink::Send(int file, const RingWriter& ring) {
  if (!OwnsDescriptor()) return false;
  RingHandover handover = ring.handover();
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
  std::memcpy(CMSG_DATA(rights), &file, sizeof file);
  // A SOCK_SEQPACKET socket takes a message whole or not at all.
  return sendmsg(socket_, &message, MSG_NOSIGNAL | MSG_DONTWAIT) ==
         static_cast<ssize_t>(sizeof handover);
}

// One poll without waiting. Nothing is read here.
RelayLink::State RelayLink::Look(bool* has_messages) const {
  if (socket_ < 0) return State::kDead;
  pollfd look = {socket_, POLLIN, 0};
  const int events = poll(&look, 1, 0);
  if (events == 0) return State::kAlive;
  // Whose news this is has to be asked only now: one system call a look.
  if (events < 0 || !OwnsDescriptor()) return State::kUnknown;
  if (has_messages != nullptr) *has_messages = (look.revents & POLLIN) != 0;
  const bool dead = (look.revents & (POLLHUP | POLLERR)) != 0;
  return dead ? State::kDead : State::kAlive;
}

// No lock and no allocation: this runs in an atfork handler.
void RelayLink::Abandon() {
  if (OwnsDescriptor()) close(socket_);
  socket_ = -1;
  // A child that kept these open would hold the memory of rings whose process
  // is gone.
  for (RingWriter* ring : rings_) ring->CloseFile();
}

}  // namespace traincheck::agent
