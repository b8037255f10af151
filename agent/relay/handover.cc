#include "agent/relay/handover.h"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"

namespace traincheck::agent {
namespace {

// An agent sends one ring with a message. There is room for more files, so that
// a message with too many is seen, and they are closed.
constexpr size_t kMaxFilesInMessage = 8;

absl::Status SystemError(const char* call) {
  return absl::UnavailableError(absl::StrCat(call, ": ", std::strerror(errno)));
}

int SocketOption(int fd, int option) {
  int value = 0;
  socklen_t size = sizeof value;
  return getsockopt(fd, SOL_SOCKET, option, &value, &size) == 0 ? value : -1;
}

// ECONNABORTED: a peer was gone again before it was accepted.
bool NothingNow() {
  return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ||
         errno == ECONNABORTED;
}

// Takes over all files that came with a message, so that none stays open.
std::vector<UniqueFd> FilesOf(msghdr* message) {
  std::vector<UniqueFd> files;
  for (cmsghdr* part = CMSG_FIRSTHDR(message); part != nullptr;
       part = CMSG_NXTHDR(message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    const size_t bytes = part->cmsg_len - CMSG_LEN(0);
    std::vector<int> fds(bytes / sizeof(int));
    std::memcpy(fds.data(), CMSG_DATA(part), fds.size() * sizeof(int));
    for (int fd : fds) files.emplace_back(fd);
  }
  return files;
}

}  // namespace

// Started by hand, the program has no such socket, and says so.
absl::Status PrepareListener(int fd) {
  if (SocketOption(fd, SO_ACCEPTCONN) != 1 ||
      SocketOption(fd, SO_DOMAIN) != AF_UNIX ||
      SocketOption(fd, SO_TYPE) != SOCK_SEQPACKET) {
    return absl::FailedPreconditionError(
        absl::StrCat("file descriptor ", fd,
                     " is not the agent's listening socket: this program is "
                     "started by the agent only"));
  }
  // A peer can disappear between poll and accept, which would then wait for the
  // next one and hold up every process that is connected.
  if (fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK) != 0) {
    return SystemError("fcntl");
  }
  return absl::OkStatus();
}

// The peer is identified by the kernel: its messages are not believed for that.
absl::StatusOr<std::optional<Peer>> AcceptPeer(int listener) {
  UniqueFd socket(
      accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (NothingNow()) return std::nullopt;
    return SystemError("accept");
  }
  ucred who = {};
  socklen_t size = sizeof who;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &who, &size) != 0) {
    return SystemError("SO_PEERCRED");
  }
  // The kernel notes this when the peer connects, so nobody can pass for
  // another user.
  if (who.uid != geteuid()) {
    return absl::PermissionDeniedError(
        absl::StrCat("a process of user ", who.uid, " tried to connect"));
  }
  Peer peer;
  peer.socket = std::move(socket);
  peer.pid = static_cast<uint32_t>(who.pid);
  // Where this fails, the closed socket stands for the end of the process.
  peer.pidfd = UniqueFd(static_cast<int>(syscall(SYS_pidfd_open, who.pid, 0)));
  return peer;
}

// The size of a message and the number of its files are checked here; the ring
// itself in RingReader::Map.
absl::StatusOr<std::optional<Handover>> ReceiveHandover(int socket) {
  // One byte more, to see that a message is too long.
  char bytes[sizeof(RingHandover) + 1];
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxFilesInMessage * sizeof(int))];
  iovec part = {bytes, sizeof bytes};
  msghdr message = {};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  ssize_t size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  // A peer that died with our answers unread resets the connection. That is
  // reported once; what the peer had sent is still there behind it.
  if (size < 0 && errno == ECONNRESET) {
    size = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  }
  if (size < 0) {
    if (NothingNow()) return std::nullopt;
    return absl::OutOfRangeError(std::strerror(errno));
  }
  // Before the message is judged: files that came with a malformed one are
  // closed, too.
  std::vector<UniqueFd> files = FilesOf(&message);
  if (size == 0) return absl::OutOfRangeError("closed");
  if (size != sizeof(RingHandover) || files.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("a message of ", size, " bytes with ", files.size(),
                     " files is not a handover of a ring"));
  }
  Handover handover;
  std::memcpy(&handover.message, bytes, sizeof handover.message);
  handover.memory = std::move(files[0]);
  return handover;
}

void AnswerHasRing(int socket) {
  const uint32_t answer = kRelayHasRing;
  // A peer that is gone needs no answer.
  [[maybe_unused]] const ssize_t sent =
      send(socket, &answer, sizeof answer, MSG_DONTWAIT | MSG_NOSIGNAL);
}

}  // namespace traincheck::agent
