#include "agent/relay/process_setup.h"

#include <dirent.h>
#include <fcntl.h>
#include <sched.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <vector>

namespace traincheck::agent {
namespace {

// For kernels before 5.9, which have no close_range.
void CloseOpenFrom(int first) {
  DIR* folder = opendir("/proc/self/fd");
  if (folder == nullptr) return;
  // Gathered first: closing would change the folder that is being read.
  std::vector<int> open;
  while (const dirent* entry = readdir(folder)) {
    const int fd = std::atoi(entry->d_name);
    if (fd >= first && fd != dirfd(folder)) open.push_back(fd);
  }
  closedir(folder);
  for (int fd : open) close(fd);
}

}  // namespace

// Without this, a socket could get the number 2, and log lines would go into
// it.
void OpenStandardFiles() {
  for (int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    // Opening takes the lowest number that is free: that of `fd`.
    if (fcntl(fd, F_GETFD) < 0) {
      [[maybe_unused]] const int opened = open("/dev/null", O_RDWR);
    }
  }
}

// The relay inherits what the training had open where its kernel lacks
// close_range.
void CloseFrom(int first) {
  if (syscall(SYS_close_range, first, ~0u, 0) != 0) CloseOpenFrom(first);
}

void ResetAffinity() {
  // The training may be bound to a few cores, which the relay would otherwise
  // take time from.
  cpu_set_t all;
  std::memset(&all, 0xff, sizeof all);
  // Where it is not allowed, the relay stays where the training runs.
  [[maybe_unused]] const int result = sched_setaffinity(0, sizeof all, &all);
}

UniqueFd SetUpSignals() {
  // Ignored signals stay ignored across exec: what the training does with its
  // signals must not decide what the relay does.
  for (int number = 1; number < NSIG; ++number) signal(number, SIG_DFL);
  // Ctrl-C and the end of a terminal reach the whole process group, and the
  // relay still has to deliver the rest.
  for (int number : {SIGINT, SIGHUP, SIGPIPE}) signal(number, SIG_IGN);
  // Before there are threads, which inherit it: the signal reaches the
  // descriptor alone.
  sigset_t blocked;
  sigemptyset(&blocked);
  sigaddset(&blocked, SIGTERM);
  sigprocmask(SIG_SETMASK, &blocked, nullptr);
  return UniqueFd(signalfd(-1, &blocked, SFD_CLOEXEC | SFD_NONBLOCK));
}

// These variables are read when gRPC starts, so they are set before.
void SetUpGrpcEnvironment() {
  // Errors are reported by the relay itself, once. glibc's resolver would
  // load shared objects into a static program; c-ares does not.
  setenv("GRPC_VERBOSITY", "NONE", /*overwrite=*/0);
  setenv("GRPC_DNS_RESOLVER", "ares", /*overwrite=*/1);
}

}  // namespace traincheck::agent
