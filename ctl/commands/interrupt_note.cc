#include "ctl/commands/interrupt_note.h"

#include <signal.h>
#include <unistd.h>

#include <thread>

#include "absl/strings/str_cat.h"
#include "ctl/report.h"

namespace traincheck::ctl {
namespace {

constexpr int kKilledBySignal = 128;

// Ctrl-C, and what a scheduler sends to end a job.
sigset_t Signals() {
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGINT);
  sigaddset(&signals, SIGTERM);
  return signals;
}

}  // namespace

InterruptNote::InterruptNote() {
  const sigset_t signals = Signals();
  // In this thread and in all that it makes from now on, so that the signals
  // reach only the thread that waits for them.
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  std::thread([this] { Await(); }).detach();
}

void InterruptNote::SetJob(const std::string& id) {
  const std::lock_guard<std::mutex> lock(mutex_);
  job_ = id;
}

void InterruptNote::Await() {
  const sigset_t signals = Signals();
  int number = 0;
  while (sigwait(&signals, &number) != 0) {
  }
  // Held to the end of the process, which is the next thing.
  const std::lock_guard<std::mutex> lock(mutex_);
  if (job_.empty()) {
    WriteToStderr(
        "\ntraincheckctl: interrupted before the server named the job; see "
        "traincheckctl jobs list\n");
  } else {
    WriteToStderr(absl::StrCat(
        "\ntraincheckctl: job ", job_, " goes on; see it with: traincheckctl ",
        "jobs show ", job_, "; end it with: traincheckctl jobs cancel ", job_,
        "\n"));
  }
  // The main thread is in a call and goes on: destructors would take away what
  // it uses.
  _exit(kKilledBySignal + number);
}

}  // namespace traincheck::ctl
