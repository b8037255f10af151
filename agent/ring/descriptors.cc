#include "agent/ring/descriptors.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

namespace traincheck::agent {
namespace {

// Half of what every system gives by default.
constexpr rlim_t kPlenty = 512;

}  // namespace

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
