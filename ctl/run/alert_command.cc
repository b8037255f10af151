#include "ctl/run/alert_command.h"

#include <fcntl.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace traincheck::ctl {
namespace {

constexpr char kShell[] = "/bin/sh";

std::vector<std::string> EnvironmentOf(const v1::Violation& lead) {
  std::vector<std::string> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    all.push_back(*entry);
  }
  const auto add = [&all](const char* name, const std::string& value) {
    all.push_back(absl::StrCat("TRAINCHECK_ALERT_", name, "=", value));
  };
  add("RUN", lead.run());
  add("INCIDENT", lead.id());
  add("HEADLINE", lead.headline().empty() ? lead.text() : lead.headline());
  add("SITE", lead.sites().empty() ? "" : lead.sites(0));
  add("STEP", lead.has_first_step() ? std::to_string(lead.first_step()) : "");
  add("RANKS", absl::StrJoin(lead.ranks(), ","));
  return all;
}

// For posix_spawn, which takes arrays that end with null.
std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

// A group of its own: Ctrl-C is for the training. This process blocks signals
// that it waits for; a command takes them as usual.
void SetAttributes(posix_spawnattr_t* attributes) {
  posix_spawnattr_init(attributes);
  sigset_t none, usual;
  sigemptyset(&none);
  sigemptyset(&usual);
  sigaddset(&usual, SIGPIPE);
  posix_spawnattr_setsigmask(attributes, &none);
  posix_spawnattr_setsigdefault(attributes, &usual);
  posix_spawnattr_setpgroup(attributes, 0);
  posix_spawnattr_setflags(attributes, POSIX_SPAWN_SETSIGMASK |
                                           POSIX_SPAWN_SETSIGDEF |
                                           POSIX_SPAWN_SETPGROUP);
}

// Returns an errno.
int Spawn(const std::string& command, const v1::Violation& lead, pid_t* pid) {
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY,
                                   0);
  // Stdout is the training's.
  posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  posix_spawnattr_t attributes;
  SetAttributes(&attributes);
  std::vector<std::string> words = {kShell, "-c", command};
  std::vector<std::string> environment = EnvironmentOf(lead);
  const int error =
      posix_spawn(pid, kShell, &files, &attributes, Pointers(&words).data(),
                  Pointers(&environment).data());
  posix_spawnattr_destroy(&attributes);
  posix_spawn_file_actions_destroy(&files);
  return error;
}

}  // namespace

absl::Status AlertCommand::Start(const v1::Violation& lead) {
  Reap();
  if (command_.empty()) return absl::OkStatus();
  if (started_ == kMaxAlertCommands) {
    return absl::ResourceExhaustedError(
        absl::StrCat("--on-alert was started ", started_,
                     " times and is not started any more in this run"));
  }
  ++started_;
  pid_t pid = -1;
  const int error = Spawn(command_, lead, &pid);
  if (error != 0) {
    return absl::UnavailableError(
        absl::StrCat("--on-alert cannot be started: ", std::strerror(error)));
  }
  running_.push_back(pid);
  return absl::OkStatus();
}

void AlertCommand::Reap() {
  std::vector<pid_t> still;
  for (const pid_t pid : running_) {
    if (waitpid(pid, nullptr, WNOHANG) == 0) still.push_back(pid);
  }
  running_ = std::move(still);
}

}  // namespace traincheck::ctl
