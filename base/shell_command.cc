#include "base/shell_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <unistd.h>

#include <cstring>

#include "absl/strings/str_cat.h"
#include "base/printable_text.h"

namespace traincheck {
namespace {

constexpr char kShell[] = "/bin/sh";

// Cut first: what is left of a character is no UTF-8 then, and made printable.
std::string Harmless(const std::string& value) {
  return EscapeUnprintable(value.substr(0, kMaxVariableBytes));
}

std::vector<std::string> EnvironmentOf(const ShellCommand& command) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    all.push_back(*entry);
  }
  for (const auto& [name, value] : command.variables) {
    all.push_back(absl::StrCat(name, "=", Harmless(value)));
  }
  return all;
}

// For posix_spawn, which takes arrays that end with null.
std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// What a process that is started gets of us.
class Plan {
 public:
  Plan() {
    posix_spawn_file_actions_init(&files_);
    posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null",
                                     O_RDONLY, 0);
    posix_spawn_file_actions_adddup2(&files_, STDERR_FILENO, STDOUT_FILENO);
    posix_spawn_file_actions_addclosefrom_np(&files_, STDERR_FILENO + 1);
    posix_spawnattr_init(&attributes_);
    sigset_t signals;
    sigemptyset(&signals);
    posix_spawnattr_setsigmask(&attributes_, &signals);
    sigfillset(&signals);
    posix_spawnattr_setsigdefault(&attributes_, &signals);
    posix_spawnattr_setpgroup(&attributes_, 0);
    posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETSIGMASK |
                                               POSIX_SPAWN_SETSIGDEF |
                                               POSIX_SPAWN_SETPGROUP);
  }
  ~Plan() {
    posix_spawnattr_destroy(&attributes_);
    posix_spawn_file_actions_destroy(&files_);
  }
  Plan(const Plan&) = delete;
  Plan& operator=(const Plan&) = delete;

  // Returns an errno.
  int Spawn(const ShellCommand& command, pid_t* pid) const {
    std::vector<std::string> words = {kShell, "-c", command.text};
    std::vector<std::string> environment = EnvironmentOf(command);
    return posix_spawn(pid, kShell, &files_, &attributes_,
                       Pointers(&words).data(), Pointers(&environment).data());
  }

 private:
  posix_spawn_file_actions_t files_;
  posix_spawnattr_t attributes_;
};

}  // namespace

absl::StatusOr<pid_t> StartShellCommand(const ShellCommand& command) {
  pid_t pid = -1;
  const int error = Plan().Spawn(command, &pid);
  if (error == 0) return pid;
  return absl::UnavailableError(
      absl::StrCat(kShell, " cannot be started: ", std::strerror(error)));
}

}  // namespace traincheck
