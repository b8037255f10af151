#include "ctl/run/agent_library.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ctl/run/installed_file.h"

namespace traincheck::ctl {
namespace {

constexpr char kLibrary[] = "libtraincheck_agent.so";
// Needs nothing and does nothing: what it writes on stderr comes from the
// loader or the library.
constexpr char kTrialProgram[] = "/bin/true";

// Reads all that the trial writes on stderr; the loader complains there and
// goes on.
std::string ReadAll(int fd) {
  std::string text;
  char buffer[512];
  for (ssize_t n; (n = read(fd, buffer, sizeof(buffer))) > 0;) {
    text.append(buffer, static_cast<size_t>(n));
  }
  return text.substr(0, text.find('\n'));
}

// Starts the trial with `stderr_fd` as its stderr; returns an errno.
int Spawn(const std::string& library, int stderr_fd, pid_t* pid) {
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, stderr_fd, STDERR_FILENO);
  std::string program = kTrialProgram;
  std::string preload = "LD_PRELOAD=" + library;
  char* argv[] = {program.data(), nullptr};
  // No other variable: neither settings of the user nor another preloaded
  // library take part in the trial.
  char* envp[] = {preload.data(), nullptr};
  const int error =
      posix_spawn(pid, kTrialProgram, &actions, nullptr, argv, envp);
  posix_spawn_file_actions_destroy(&actions);
  return error;
}

}  // namespace

absl::StatusOr<std::string> FindAgentLibrary() {
  return FindAgentFile(kLibrary);
}

// Tried on a program that can come to no harm: with a library that the loader
// cannot load every process of the job would complain, or die.
absl::Status TryPreload(const std::string& library) {
  if (library.find_first_of(": ") != std::string::npos) {
    return absl::InvalidArgumentError(
        absl::StrCat("\"", library,
                     "\" cannot be preloaded: LD_PRELOAD separates paths by "
                     "colons and spaces"));
  }
  int pipe_fds[2];
  if (pipe2(pipe_fds, O_CLOEXEC) != 0) {
    return absl::ErrnoToStatus(errno, "pipe2");
  }
  pid_t pid = -1;
  const int error = Spawn(library, pipe_fds[1], &pid);
  // With this copy open ReadAll would never see the end.
  close(pipe_fds[1]);
  const std::string complaint = error == 0 ? ReadAll(pipe_fds[0]) : "";
  close(pipe_fds[0]);
  if (error != 0) return absl::ErrnoToStatus(error, kTrialProgram);

  int wait_status = 0;
  while (waitpid(pid, &wait_status, 0) < 0 && errno == EINTR) {
  }
  // The loader complains of a library that it cannot load, and goes on; a
  // missing symbol ends the program.
  if (wait_status == 0 && complaint.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(
      absl::StrCat(kTrialProgram, " does not run well with ", library,
                   " preloaded", complaint.empty() ? "" : ": ", complaint));
}

absl::StatusOr<std::string> UsableAgentLibrary() {
  absl::StatusOr<std::string> library = FindAgentLibrary();
  if (!library.ok()) return library;
  if (absl::Status status = TryPreload(*library); !status.ok()) return status;
  return library;
}

}  // namespace traincheck::ctl
