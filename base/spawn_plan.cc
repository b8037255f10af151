#include "base/spawn_plan.h"

#include <fcntl.h>
#include <signal.h>

extern char** environ;

namespace traincheck {
namespace {

// For posix_spawn, which takes arrays that end with null.
std::vector<char*> Pointers(std::vector<std::string>* texts) {
  std::vector<char*> pointers;
  for (std::string& text : *texts) pointers.push_back(text.data());
  pointers.push_back(nullptr);
  return pointers;
}

}  // namespace

SpawnPlan::SpawnPlan(std::optional<int> file) {
  // These run in this order: copies first, then everything above them is
  // closed, also what a library has opened without close-on-exec. A copy stays
  // open over exec.
  posix_spawn_file_actions_init(&files_);
  posix_spawn_file_actions_addopen(&files_, STDIN_FILENO, "/dev/null", O_RDONLY,
                                   0);
  posix_spawn_file_actions_adddup2(&files_, STDERR_FILENO, STDOUT_FILENO);
  if (file) posix_spawn_file_actions_adddup2(&files_, *file, kGivenFile);
  posix_spawn_file_actions_addclosefrom_np(&files_,
                                           file ? kGivenFile + 1 : kGivenFile);
  posix_spawnattr_init(&attributes_);
  // A signal that is blocked or ignored here would stay so over exec.
  sigset_t signals;
  sigemptyset(&signals);
  posix_spawnattr_setsigmask(&attributes_, &signals);
  sigfillset(&signals);
  posix_spawnattr_setsigdefault(&attributes_, &signals);
  // A group of its own: a Ctrl-C at this program's terminal does not reach the
  // command.
  posix_spawnattr_setpgroup(&attributes_, 0);
  posix_spawnattr_setflags(&attributes_, POSIX_SPAWN_SETPGROUP |
                                             POSIX_SPAWN_SETSIGMASK |
                                             POSIX_SPAWN_SETSIGDEF);
}

SpawnPlan::~SpawnPlan() {
  posix_spawn_file_actions_destroy(&files_);
  posix_spawnattr_destroy(&attributes_);
}

// posix_spawn copies no page tables, unlike fork, so a start takes as long in a
// large daemon as in a small one.
int SpawnPlan::Spawn(const std::string& program, std::vector<std::string> words,
                     const std::vector<std::string>& variables,
                     pid_t* pid) const {
  std::vector<std::string> environment;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    environment.push_back(*entry);
  }
  environment.insert(environment.end(), variables.begin(), variables.end());
  return posix_spawn(pid, program.c_str(), &files_, &attributes_,
                     Pointers(&words).data(), Pointers(&environment).data());
}

}  // namespace traincheck
