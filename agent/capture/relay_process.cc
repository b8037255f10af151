#include "agent/capture/relay_process.h"

#include <fcntl.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "agent/capture/agent_settings.h"

namespace traincheck::agent {
namespace {

// The relay expects its listening socket under this number, as relay_main.cc
// says.
constexpr int kRelaySocket = 3;
constexpr size_t kStackBytes = 64u << 10;  // of each of the two children
constexpr int kKeeperIsGone = ECHILD;

// What both children need, prepared by the parent: the children share its
// memory while it waits, and must not allocate or take a lock.
struct Launch {
  std::string program;
  char** environment = nullptr;
  int socket = -1;
  int dev_null = -1;
  char* inner_stack_end = nullptr;
  int error = 0;
  std::atomic<bool> started{false};
};

// A handler of the program must not run in a child that shares its memory. exec
// would reset the handlers, but signals that are pending come before that.
void ResetSignals() {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  for (int signal = 1; signal < NSIG; ++signal) {
    sigaction(signal, &standard, nullptr);
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

// Training pins itself to cores; the relay must not compete for them.
void ResetAffinity() {
  unsigned long all[16];
  std::memset(all, 0xff, sizeof all);
  syscall(SYS_sched_setaffinity, 0, sizeof all, all);
}

// Descriptors 0, 1 and 3 as the relay expects them; all others but stderr go.
bool ArrangeDescriptors(const Launch& launch) {
  // Both descriptors are duplicated to 10 and above before 0, 1 and 3 are
  // replaced, because either may have one of these numbers.
  const int socket = fcntl(launch.socket, F_DUPFD, 10);
  const int dev_null = fcntl(launch.dev_null, F_DUPFD, 10);
  if (socket < 0 || dev_null < 0) return false;
  if (dup2(dev_null, 0) < 0 || dup2(dev_null, 1) < 0) return false;
  if (dup2(socket, kRelaySocket) < 0) return false;
#ifdef SYS_close_range
  // Older kernels: the relay closes what it finds.
  syscall(SYS_close_range, kRelaySocket + 1, ~0U, 0);
#endif
  return true;
}

// The child that becomes the relay. setsid takes it out of the terminal's
// group, so that Ctrl-C does not reach it.
int RunInner(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  setsid();
  ResetAffinity();
  ResetSignals();
  if (ArrangeDescriptors(launch)) {
    char* arguments[] = {launch.program.data(), nullptr};
    execve(launch.program.c_str(), arguments, launch.environment);
  }
  launch.error = errno;
  // Not exit: the memory is the training's, and its handlers would run.
  _exit(127);
}

// The child in between ends as soon as the relay's program runs, so that the
// relay is adopted by init and is not a child of the training.
int RunOuter(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  // The exit signal matters to whoever adopts the relay. Memory is shared,
  // descriptors and handlers are not (no CLONE_FILES, no CLONE_SIGHAND): what
  // the children change of them is their own.
  if (clone(RunInner, launch.inner_stack_end, CLONE_VM | CLONE_VFORK | SIGCHLD,
            argument) < 0) {
    launch.error = errno;
  }
  _exit(0);
}

// The first process of a container adopts every orphan, and its wait() would
// meet the relay. There the outer child stays, adopts the relay and reaps it.
// It has this process's memory, all signals blocked, and makes only system
// calls that succeed: errno is this process's too.
int RunKeeper(void* argument) {
  Launch& launch = *static_cast<Launch*>(argument);
  setsid();
  prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
  const int relay = clone(RunInner, launch.inner_stack_end,
                          CLONE_VM | CLONE_VFORK | SIGCHLD, argument);
  if (relay < 0) launch.error = errno;
  launch.started.store(true, std::memory_order_release);  // its last use
  if (relay > 0) waitpid(relay, nullptr, 0);
  _exit(0);
}

// The strings are owned by this object, which lives until the exec.
class Environment {
 public:
  explicit Environment(int number) : settings_(LinesOfFile()) {
    owner_ = "TRAINCHECK_OWNER_PID=" + std::to_string(getpid());
    start_ = "TRAINCHECK_RELAY_START=" + std::to_string(number);
    for (char** variable = environ; variable && *variable; ++variable) {
      // The relay must not load the agent itself, gets the settings of the file
      // as variables, and has an owner and a number of its own below.
      if (Named(*variable, "LD_PRELOAD=")) continue;
      if (Named(*variable, "TRAINCHECK_OWNER_PID=")) continue;
      if (Named(*variable, "TRAINCHECK_RELAY_START=")) continue;
      if (Named(*variable, "TRAINCHECK_CONFIG=")) continue;
      variables_.push_back(*variable);
    }
    for (std::string& line : settings_) variables_.push_back(line.data());
    variables_.push_back(owner_.data());
    if (number > 1) variables_.push_back(start_.data());
    variables_.push_back(nullptr);
  }
  char** get() { return variables_.data(); }

 private:
  static bool Named(const char* variable, const char* prefix) {
    return std::strncmp(variable, prefix, std::strlen(prefix)) == 0;
  }
  // The relay gets what was read, not the name of a file that may change.
  static std::vector<std::string> LinesOfFile() {
    std::vector<std::string> lines;
    for (const auto& [name, value] : SettingsOfFile()) {
      // The environment goes before the file, as in SettingOf.
      if (getenv(name.c_str()) == nullptr) lines.push_back(name + "=" + value);
    }
    return lines;
  }
  std::string owner_;
  std::string start_;
  std::vector<std::string> settings_;
  std::vector<char*> variables_;
};

// An outer child with exit signal 0 is found only by a wait with __WCLONE, so
// the user's wait() does not meet it.
int RunBoth(Launch* launch, char* outer_stack_end) {
  sigset_t all, before;
  // Children begin with this mask: no handler of the program runs on their
  // small stacks.
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  const int child =
      clone(RunOuter, outer_stack_end, CLONE_VM | CLONE_VFORK, launch);
  int error = child < 0 ? errno : 0;
  if (child > 0) {
    while (waitpid(child, nullptr, __WCLONE) < 0 && errno == EINTR) {
    }
    error = launch->error;
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  return error;
}

// As RunBoth, for a process that is the init of its container. The stacks are
// not given back, since the keeper uses its own as long as the relay lives.
int RunKept(Launch* launch, char* keeper_stack_end) {
  sigset_t all, before;
  sigfillset(&all);
  sigprocmask(SIG_BLOCK, &all, &before);
  // Without CLONE_VFORK, which would wait until the keeper ends.
  const int keeper = clone(RunKeeper, keeper_stack_end, CLONE_VM, launch);
  const int error = keeper < 0 ? errno : 0;
  bool gone = false;
  while (keeper > 0 && !gone &&
         !launch->started.load(std::memory_order_acquire)) {
    // Killed, for want of memory perhaps: nobody would store it any more.
    gone = waitpid(keeper, nullptr, WNOHANG | __WCLONE) == keeper;
    const timespec pause = {0, 100'000};
    nanosleep(&pause, nullptr);
  }
  sigprocmask(SIG_SETMASK, &before, nullptr);
  if (error != 0) return error;
  // It may have been killed right behind that.
  if (!launch->started.load(std::memory_order_acquire)) return kKeeperIsGone;
  return launch->error;
}

}  // namespace

// The calling thread waits for the exec, so that an error of the exec can be
// returned.
int StartRelay(const std::string& program, int listening_socket, int number) {
  auto environment = std::make_unique<Environment>(number);
  auto launch = std::make_unique<Launch>();
  launch->program = program;
  launch->environment = environment->get();
  launch->socket = listening_socket;
  launch->dev_null = open("/dev/null", O_RDWR | O_CLOEXEC);
  if (launch->dev_null < 0) return errno;
  int error = 0;
  void* stacks = mmap(nullptr, 2 * kStackBytes, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
  if (stacks == MAP_FAILED) {
    error = errno;
  } else {
    launch->inner_stack_end = static_cast<char*>(stacks) + kStackBytes;
    char* outer_stack_end = static_cast<char*>(stacks) + 2 * kStackBytes;
    // The first process of a container would adopt the relay itself.
    if (getpid() == 1) {
      error = RunKept(launch.get(), outer_stack_end);
    } else {
      error = RunBoth(launch.get(), outer_stack_end);
      munmap(stacks, 2 * kStackBytes);
    }
  }
  close(launch->dev_null);
  if (error == kKeeperIsGone) {
    // The inner child may live, and not have come to its exec.
    static_cast<void>(launch.release());
    static_cast<void>(environment.release());
  }
  return error;
}

}  // namespace traincheck::agent
