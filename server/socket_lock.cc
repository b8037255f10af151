#include "server/socket_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"

namespace traincheck::server {
namespace {

constexpr char kUnix[] = "unix:";

}  // namespace

absl::Status SocketLock::Take(const std::string& address) {
  if (!absl::StartsWith(address, kUnix)) return absl::OkStatus();
  const std::string path = address.substr(sizeof kUnix - 1) + ".lock";
  // Without following links: in a folder of many users one could lead to a file
  // of this user.
  fd_ = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd_ < 0) return absl::ErrnoToStatus(errno, path);
  // The kernel frees it when the daemon dies, however that happens.
  if (flock(fd_, LOCK_EX | LOCK_NB) == 0) return absl::OkStatus();
  return absl::UnavailableError(absl::StrCat(
      "another traincheckd listens on ", address,
      ": stop it, or give this one another address with --listen"));
}

// The file stays: whoever waits for it must not lock one that is gone.
SocketLock::~SocketLock() {
  if (fd_ >= 0) close(fd_);
}

}  // namespace traincheck::server
