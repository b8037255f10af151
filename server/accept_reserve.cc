// accept4 as this program's gRPC calls it (--wrap=accept4 in BUILD.bazel).
//
// gRPC 1.51 gives its port up for good when accept4 says EMFILE: who opens
// connections until the daemon's files are used up makes it deaf until it is
// started again. Here a connection that would take one of the last files is
// closed at once, so that the port lives on and the store has files to open.
//
// Threads: gRPC's.
#include <errno.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>

#include "absl/time/clock.h"
#include "base/line_limit.h"
#include "base/logging.h"

namespace traincheck::server {
namespace {

// For the database (RocksdbDatabase::kMaxOpenFiles), inference jobs and
// backups; a small limit is shared by halves.
constexpr rlim_t kReserve = 320;

// The first number of a file that no connection may have. Files get the
// smallest number that is free.
int FirstReserved() {
  rlimit files;
  if (getrlimit(RLIMIT_NOFILE, &files) != 0) return INT32_MAX;
  const rlim_t reserve = std::min(kReserve, files.rlim_cur / 2);
  return static_cast<int>(
      std::min<rlim_t>(files.rlim_cur - reserve, INT32_MAX));
}

// Anybody can cause these lines, so there is one in ten seconds at most.
void LogRefusal(int limit) {
  static auto& lines = *new LineLimit(1, absl::Seconds(10));
  if (!lines.Allows(absl::Now())) return;
  spdlog::warn(
      "connections are refused, too many files are open limit={} "
      "advice=\"raise the limit of open files (ulimit -n)\"",
      limit);
}

}  // namespace
}  // namespace traincheck::server

extern "C" int __real_accept4(int listener, sockaddr* address,
                              socklen_t* length, int flags);

// The linker puts this in the place of accept4 for every caller in the program.
// It keeps the contract of accept4: a descriptor, or -1 with errno.
extern "C" int __wrap_accept4(int listener, sockaddr* address,
                              socklen_t* length, int flags) {
  const int fd = __real_accept4(listener, address, length, flags);
  const int reserved = traincheck::server::FirstReserved();
  if (fd >= 0 && fd < reserved) return fd;
  if (fd >= 0) {
    close(fd);
    traincheck::server::LogRefusal(reserved);
    errno = EINTR;  // gRPC takes the next one
  } else if (errno == EMFILE || errno == ENFILE) {
    traincheck::server::LogRefusal(reserved);
    errno = EAGAIN;  // gRPC comes back with the next one
  }
  return -1;
}
