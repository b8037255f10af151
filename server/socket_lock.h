// One daemon a unix socket. gRPC takes a socket's path over from whoever
// listens there; a lock on PATH.lock keeps a second daemon from that.
//
// Threads: one thread.
#ifndef TRAINCHECK_SERVER_SOCKET_LOCK_H_
#define TRAINCHECK_SERVER_SOCKET_LOCK_H_

#include <string>

#include "absl/status/status.h"

namespace traincheck::server {

class SocketLock {
 public:
  SocketLock() = default;
  ~SocketLock();
  SocketLock(const SocketLock&) = delete;
  SocketLock& operator=(const SocketLock&) = delete;

  // Nothing to do for an address that is not a socket. Unavailable if another
  // daemon listens there.
  [[nodiscard]] absl::Status Take(const std::string& address);

 private:
  int fd_ = -1;
};

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_SOCKET_LOCK_H_
