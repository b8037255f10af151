#include "ctl/run/relay_program.h"

#include <fcntl.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ctl/exit_codes.h"
#include "ctl/run/installed_file.h"
#include "proto/settings/settings.h"

namespace traincheck::ctl {
namespace {

constexpr char kRelay[] = "traincheck-relay";

std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// This program's own variables; those that are given replace them.
std::vector<std::string> Environment(const std::vector<std::string>& further) {
  // A name that is given must not appear twice: programs take either of two
  // entries.
  std::vector<std::string> environment = further;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const std::string name = text.substr(0, text.find('=') + 1);
    bool replaced = false;
    for (const std::string& given : further) {
      replaced |= given.compare(0, name.size(), name) == 0;
    }
    if (!replaced) environment.push_back(text);
  }
  return environment;
}

std::string ReadAll(int fd) {
  std::string text;
  char buffer[4096];
  while (true) {
    const ssize_t n = read(fd, buffer, sizeof buffer);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return text;
    text.append(buffer, static_cast<size_t>(n));
  }
}

}  // namespace

absl::StatusOr<std::string> FindRelayProgram() { return FindAgentFile(kRelay); }

absl::StatusOr<ProgramResult> RunProgram(
    std::vector<std::string> command,
    const std::vector<std::string>& variables) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return absl::ErrnoToStatus(errno, "pipe2");
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  // stdout is the program's answer, which the caller parses; what it logs goes
  // to the user's terminal.
  posix_spawn_file_actions_adddup2(&actions, ends[1], STDOUT_FILENO);
  // Made before the spawn, because the child gets pointers into these texts.
  std::vector<std::string> environment = Environment(variables);
  pid_t pid = -1;
  const int error =
      posix_spawn(&pid, command[0].c_str(), &actions, nullptr,
                  Pointers(&command).data(), Pointers(&environment).data());
  posix_spawn_file_actions_destroy(&actions);
  // With this copy open ReadAll would never see the end.
  close(ends[1]);
  ProgramResult result;
  // Before the wait: a program that writes more than a pipe holds would not
  // end.
  if (error == 0) result.out = ReadAll(ends[0]);
  close(ends[0]);
  if (error != 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(command[0], ": ", std::strerror(error)));
  }
  int status = 0;
  while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  result.code = WIFEXITED(status) ? WEXITSTATUS(status)
                                  : kExitSignalBase + WTERMSIG(status);
  return result;
}

absl::StatusOr<std::string> SpoolSetting() {
  constexpr char kName[] = "TRAINCHECK_SPOOL_DIR";
  constexpr char kFile[] = "TRAINCHECK_CONFIG";
  const char* const folder = std::getenv(kName);
  // The environment outweighs the files, as it does for the relay itself.
  if (folder != nullptr) return folder;
  // Only these two variables take part: a mistake in another setting must not
  // keep spool files from being delivered.
  const char* const file = std::getenv(kFile);
  const std::string named =
      absl::StrCat(kFile, "=", file == nullptr ? "" : file);
  const char* const environment[] = {file == nullptr ? nullptr : named.c_str(),
                                     nullptr};
  Settings settings;
  const std::string wrong = settings.Load(environment);
  if (!wrong.empty()) return absl::InvalidArgumentError(wrong);
  return settings.Get(kName);
}

}  // namespace traincheck::ctl
