#include "ctl/preflight/private_daemon.h"

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/run/installed_file.h"

namespace traincheck::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

constexpr milliseconds kGlance{20};
// It starts within a second on an idle machine, and stops within 5.
constexpr milliseconds kStartsWithin{60'000};
constexpr milliseconds kStopsWithin{10'000};
constexpr size_t kShownBytes = 2000;  // of its log
constexpr int kCannotExecute = 127;

// In its folder.
// The daemon chooses its port, so its address is known only when it has written
// it here.
constexpr char kAddressFile[] = "address";
constexpr char kLogFile[] = "traincheckd.log";

}  // namespace

absl::StatusOr<std::unique_ptr<PrivateDaemon>> PrivateDaemon::Start(
    const TrainingSignals& signals, int* ended_by) {
  const absl::StatusOr<std::string> program = FindBesideProgram("traincheckd");
  if (!program.ok()) return program.status();
  auto folder = TemporaryFolder::Make();
  if (!folder.ok()) return folder.status();
  std::unique_ptr<PrivateDaemon> daemon(new PrivateDaemon(*std::move(folder)));
  // Those of another daemon.
  // For this program, too: its client speaks to the private daemon in plain
  // text on loopback, and a token for another one must not reach it.
  unsetenv("TRAINCHECK_TLS_CA");
  unsetenv("TRAINCHECK_TOKEN_FILE");
  absl::Status status = daemon->Spawn(*program, signals);
  if (status.ok()) status = daemon->WaitForAddress(signals, ended_by);
  if (!status.ok()) return status;
  return daemon;
}

absl::Status PrivateDaemon::Spawn(const std::string& program,
                                  const TrainingSignals& signals) {
  const std::string data = folder_->Path("data"),
                    port = folder_->Path(kAddressFile),
                    log = folder_->Path(kLogFile);
  const char* const words[] = {program.c_str(), "--data-dir",  data.c_str(),
                               "--listen",      "127.0.0.1:0", "--port-file",
                               port.c_str(),    nullptr};
  const pid_t parent = getpid();
  pid_ = fork();
  if (pid_ < 0) return absl::ErrnoToStatus(errno, "fork");
  if (pid_ > 0) return absl::OkStatus();
  // Only what a signal handler may call, too. A terminal's Ctrl-C must not end
  // the daemon before the training has delivered; whatever ends this program
  // ends it.
  setpgid(0, 0);
  prctl(PR_SET_PDEATHSIG, SIGTERM);
  // This program may have ended before the line above: then nobody is left to
  // end the daemon.
  if (getppid() != parent) _exit(kCannotExecute);
  sigprocmask(SIG_SETMASK, &signals.original_mask(), nullptr);
  // stdout is for the report, and stderr for the training; the log is shown
  // only if the daemon does not start.
  const int nothing = open("/dev/null", O_RDONLY);
  const int file = open(log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  dup2(nothing, STDIN_FILENO);
  dup2(file, STDOUT_FILENO);
  dup2(file, STDERR_FILENO);
  execv(words[0], const_cast<char* const*>(words));
  _exit(kCannotExecute);
}

// By looking again and again: the daemon has no other way to say that it is
// ready or has failed.
absl::Status PrivateDaemon::WaitForAddress(const TrainingSignals& signals,
                                           int* ended_by) {
  const auto deadline = steady_clock::now() + kStartsWithin;
  while (true) {
    // The daemon writes the file once it takes connections.
    address_ = folder_->Read(kAddressFile);
    if (!address_.empty() && address_.back() == '\n') address_.pop_back();
    if (!address_.empty()) return absl::OkStatus();
    if (Ended()) {
      return absl::FailedPreconditionError(
          absl::StrCat("a traincheckd for this training alone did not start:\n",
                       EndOfLog()));
    }
    if (steady_clock::now() > deadline) {
      return absl::DeadlineExceededError(absl::StrCat(
          "a traincheckd for this training alone was not ready within ",
          kStartsWithin.count() / 1000, " s:\n", EndOfLog()));
    }
    // Also the pause: a Ctrl-C while the daemon starts ends the wait at once.
    *ended_by = signals.EndedWithin(kGlance);
    if (*ended_by != 0) return absl::CancelledError("ended by a signal");
  }
}

bool PrivateDaemon::Ended() {
  // Nothing else in this program reaps the daemon, so the pid is its own until
  // here.
  if (pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == pid_) pid_ = -1;
  return pid_ < 0;
}

std::string PrivateDaemon::EndOfLog() const {
  std::string log = folder_->Read(kLogFile);
  if (log.size() <= kShownBytes) return log;
  const size_t line = log.find('\n', log.size() - kShownBytes);
  return line == std::string::npos ? log : log.substr(line + 1);
}

PrivateDaemon::~PrivateDaemon() {
  const auto deadline = steady_clock::now() + kStopsWithin;
  if (!Ended()) kill(pid_, SIGTERM);
  // Ended in order it closes its store; the folder goes when it is gone.
  while (!Ended() && steady_clock::now() < deadline) {
    usleep(std::chrono::microseconds(kGlance).count());
  }
  if (!Ended()) {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
}

}  // namespace traincheck::ctl
