#include "agent/ring/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace traincheck::agent {
namespace {

// Half of the 1024 descriptors that systems give by default. With fewer, 64
// rings could make the program's own open() fail.
constexpr rlim_t kPlenty = 512;

}  // namespace

// On failure the caller keeps what it had, so that no caller needs an error
// path.
int MoveUp(int fd) {
  const int high = fcntl(fd, F_DUPFD_CLOEXEC, kLowestDescriptor);
  // The limit of the process lies below: any number is better than none.
  if (high < 0) return fd;
  close(fd);
  return high;
}

bool HasDescriptorsToSpare() {
  rlimit limit = {};
  return getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur >= kPlenty;
}

}  // namespace traincheck::agent
