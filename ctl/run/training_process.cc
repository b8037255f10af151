#include "ctl/run/training_process.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "ctl/exit_codes.h"

namespace traincheck::ctl {
namespace {

// How often an overseer is asked.
constexpr timespec kGlance = {0, 200'000'000};
constexpr int kEndingSignals[] = {SIGINT, SIGTERM, SIGHUP, SIGQUIT};

std::vector<char*> Pointers(const std::vector<std::string>& texts) {
  std::vector<char*> pointers;
  // posix_spawn does not write to them.
  for (const std::string& text : texts) {
    pointers.push_back(const_cast<char*>(text.c_str()));
  }
  pointers.push_back(nullptr);
  return pointers;
}

// A signal that is ignored and blocked is queued all the same, and would be
// passed on: a training under nohup would die of the hang-up that it was to
// survive.
bool Ignored(int signal_number) {
  struct sigaction action {};
  sigaction(signal_number, nullptr, &action);
  return action.sa_handler == SIG_IGN;
}

// The kernel sends a terminal's signals to the whole group, so the training
// has them already; the others were meant for what this process runs. Only the
// hang-up goes to the leader of the session alone (ssh -t, docker -t, tmux): a
// leader that goes on has to pass it on, or the training is left without
// anybody who could end it.
bool SentToThisProcess(int number, const siginfo_t& info) {
  return info.si_code != SI_KERNEL ||
         (number == SIGHUP && getsid(0) == getpid());
}

int ExitCode(int wait_status) {
  return WIFSIGNALED(wait_status) ? kExitSignalBase + WTERMSIG(wait_status)
                                  : WEXITSTATUS(wait_status);
}

}  // namespace

TrainingSignals::TrainingSignals() {
  // Inherited as ignored it would make children vanish unseen.
  signal(SIGCHLD, SIG_DFL);
  // What reads stderr may be gone (2> >(tee log)): a warning that nobody reads
  // must not end this program, and leave the training unwatched and its exit
  // code unknown. The training gets the default again (StartTraining).
  signal(SIGPIPE, SIG_IGN);
  sigemptyset(&ending_);
  for (int number : kEndingSignals) {
    if (!Ignored(number)) sigaddset(&ending_, number);
  }
  handled_ = ending_;
  // So that the wait below wakes up when the training ends.
  sigaddset(&handled_, SIGCHLD);
  pthread_sigmask(SIG_BLOCK, &handled_, &original_mask_);
}

int TrainingSignals::EndedWithin(std::chrono::milliseconds duration) const {
  const auto seconds =
      std::chrono::duration_cast<std::chrono::seconds>(duration);
  timespec limit{};
  limit.tv_sec = seconds.count();
  limit.tv_nsec = std::chrono::nanoseconds(duration - seconds).count();
  const int number = sigtimedwait(&ending_, nullptr, &limit);
  return number > 0 ? number : 0;
}

absl::StatusOr<pid_t> StartTraining(const TrainingCommand& command,
                                    const TrainingSignals& signals) {
  const std::vector<char*> argv = Pointers(command.words);
  const std::vector<char*> envp = Pointers(command.environment);
  // gRPC's or anybody's dispositions are not the training's.
  sigset_t to_default;
  sigemptyset(&to_default);
  sigaddset(&to_default, SIGPIPE);
  posix_spawnattr_t attributes;
  posix_spawnattr_init(&attributes);
  posix_spawnattr_setsigmask(&attributes, &signals.original_mask());
  posix_spawnattr_setsigdefault(&attributes, &to_default);
  posix_spawnattr_setflags(&attributes,
                           POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF);
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  if (command.stdout_to_stderr) {
    posix_spawn_file_actions_adddup2(&files, STDERR_FILENO, STDOUT_FILENO);
  }
  pid_t pid = -1;
  // By PATH, as a shell would find the command.
  const int error = posix_spawnp(&pid, argv[0], &files, &attributes,
                                 argv.data(), envp.data());
  posix_spawn_file_actions_destroy(&files);
  posix_spawnattr_destroy(&attributes);
  if (error == 0) return pid;
  const std::string message = absl::StrCat("cannot run \"", command.words[0],
                                           "\": ", std::strerror(error));
  if (error == ENOENT) return absl::NotFoundError(message);
  return absl::FailedPreconditionError(message);
}

// One loop for everything that may happen meanwhile: the end of the child,
// signals to pass on, and what the overseer wants.
int WaitForTraining(pid_t pid, const TrainingSignals& signals,
                    const Overseer& overseer) {
  for (;;) {
    // Before each wait: SIGCHLD is blocked, and one that is pending may stand
    // for several changes.
    int wait_status = 0;
    const pid_t ended = waitpid(pid, &wait_status, WNOHANG);
    if (ended == pid) return ExitCode(wait_status);
    siginfo_t info{};
    const int number = overseer
                           ? sigtimedwait(&signals.handled(), &info, &kGlance)
                           : sigwaitinfo(&signals.handled(), &info);
    if (number > 0 && number != SIGCHLD && SentToThisProcess(number, info)) {
      // Only this loop reaps the child, so the pid is still its own.
      kill(pid, number);
    }
    const int due = overseer ? overseer() : 0;
    if (due != 0) kill(pid, due);
  }
}

}  // namespace traincheck::ctl
