// The user's training as a child: started with stdin, stdout and stderr
// untouched and in this process group, so that a terminal's Ctrl-C reaches
// both.
//
//   const TrainingSignals signals;  // first, before any other thread
//   auto pid = StartTraining({command, environment}, signals);
//   const int code = WaitForTraining(*pid, signals);
//
// Threads: the main thread only.
#ifndef TRAINCHECK_CTL_RUN_TRAINING_PROCESS_H_
#define TRAINCHECK_CTL_RUN_TRAINING_PROCESS_H_

#include <signal.h>
#include <sys/types.h>

#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck::ctl {

// Keeps the signals that end a training from ending this program before it:
// they are blocked in this thread and every later one, and taken by the
// functions below. The training gets the mask that was there before. A signal
// that the parent had ignored (nohup) stays ignored. SIGPIPE is ignored from
// here on.
class TrainingSignals {
 public:
  TrainingSignals();
  TrainingSignals(const TrainingSignals&) = delete;
  TrainingSignals& operator=(const TrainingSignals&) = delete;

  const sigset_t& original_mask() const { return original_mask_; }
  // The ending signals and SIGCHLD.
  const sigset_t& handled() const { return handled_; }

  // Sleeps; returns early with the signal that asks this program to end, or 0.
  int EndedWithin(std::chrono::milliseconds duration) const;

 private:
  sigset_t original_mask_;
  sigset_t handled_;
  sigset_t ending_;
};

struct TrainingCommand {
  std::vector<std::string> words;
  std::vector<std::string> environment;  // "NAME=value"
  // What it prints on stdout goes to stderr, because this program's own stdout
  // is for data.
  bool stdout_to_stderr = false;
};

// NotFound if there is no such program, else FailedPrecondition.
[[nodiscard]] absl::StatusOr<pid_t> StartTraining(
    const TrainingCommand& command, const TrainingSignals& signals);

// Asked several times a second while a training goes on; returns the signal to
// send to it, or 0.
using Overseer = std::function<int()>;

// Waits for the end and passes on signals that were sent to this process
// alone. Returns the training's exit code, 128 + n for a death by signal n.
int WaitForTraining(pid_t pid, const TrainingSignals& signals,
                    const Overseer& overseer = nullptr);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_TRAINING_PROCESS_H_
