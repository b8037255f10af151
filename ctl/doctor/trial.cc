#include "ctl/doctor/trial.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"

namespace traincheck::ctl {
namespace {

using Clock = std::chrono::steady_clock;

// Both ends close on exec: the program has only the copies that Start makes.
class Pipe {
 public:
  Pipe() { ok_ = pipe2(ends_, O_CLOEXEC) == 0; }
  ~Pipe() {
    CloseWriter();
    if (ok_) close(ends_[0]);
  }
  Pipe(const Pipe&) = delete;
  Pipe& operator=(const Pipe&) = delete;

  bool ok() const { return ok_; }
  int reader() const { return ends_[0]; }
  int writer() const { return ends_[1]; }
  void CloseWriter() {
    if (ok_ && ends_[1] >= 0) close(ends_[1]);
    ends_[1] = -1;
  }

 private:
  int ends_[2] = {-1, -1};
  bool ok_ = false;
};

std::vector<char*> Pointers(const std::vector<std::string>& words) {
  std::vector<char*> pointers;
  for (const std::string& word : words) {
    pointers.push_back(const_cast<char*>(word.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// Returns an errno. posix_spawn and not fork: nothing of this program runs in
// the child before exec.
int Start(const std::vector<std::string>& command,
          const std::vector<std::string>& environment, const Pipe& out,
          const Pipe& err, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // The terminal's input is the user's.
  posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
  posix_spawn_file_actions_adddup2(&actions, out.writer(), 1);
  posix_spawn_file_actions_adddup2(&actions, err.writer(), 2);
  const int error =
      posix_spawnp(pid, command[0].c_str(), &actions, nullptr,
                   Pointers(command).data(), Pointers(environment).data());
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

// False: the other end is closed.
bool ReadSome(int fd, std::string* text) {
  char buffer[4096];
  const ssize_t size = read(fd, buffer, sizeof buffer);
  if (size > 0) text->append(buffer, static_cast<size_t>(size));
  return size > 0 || (size < 0 && errno == EINTR);
}

// Until the program has closed stdout: whoever it started may keep stderr.
// False: the time is over.
bool ReadBoth(const Pipe& out, const Pipe& err, Clock::time_point deadline,
              TrialResult* result) {
  int err_fd = err.reader();
  while (true) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(
        deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ends[] = {{out.reader(), POLLIN, 0}, {err_fd, POLLIN, 0}};
    // A signal, or the end of the time, which the next turn sees.
    if (poll(ends, 2, static_cast<int>(left.count())) <= 0) continue;
    // A closed end is always ready, so it is asked no more (-1: poll skips it).
    if (ends[1].revents != 0 && !ReadSome(err_fd, &result->err)) err_fd = -1;
    if (ends[0].revents != 0 && !ReadSome(out.reader(), &result->out)) {
      return true;
    }
  }
}

int WaitFor(pid_t pid) {
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

absl::StatusOr<TrialResult> RunTrial(
    const std::vector<std::string>& command,
    const std::vector<std::string>& environment, std::chrono::seconds limit) {
  Pipe out, err;
  if (!out.ok() || !err.ok()) return absl::ErrnoToStatus(errno, "pipe2");
  pid_t pid = -1;
  if (const int error = Start(command, environment, out, err, &pid);
      error != 0) {
    return absl::NotFoundError(
        absl::StrCat(command[0], ": ", std::strerror(error)));
  }
  // Else this process would hold the pipes open, and never see that the program
  // has closed them.
  out.CloseWriter();
  err.CloseWriter();
  TrialResult result;
  if (!ReadBoth(out, err, Clock::now() + limit, &result)) {
    kill(pid, SIGKILL);
    WaitFor(pid);
    return absl::DeadlineExceededError(
        absl::StrCat(command[0], " did not end within ", limit.count(), " s"));
  }
  result.code = WaitFor(pid);
  // What is there already and no more: a relay of the trial may hold stderr
  // open for a while.
  pollfd rest = {err.reader(), POLLIN, 0};
  while (poll(&rest, 1, 0) > 0 && (rest.revents & POLLIN) != 0 &&
         ReadSome(err.reader(), &result.err)) {
  }
  return result;
}

}  // namespace traincheck::ctl
