// The command of `run --on-alert`: started for each incident that is an alert,
// so that somebody is called or the job is stopped.
//
// It runs beside the training: nobody waits for it, what it prints goes to
// stderr, its exit code is not looked at. A command that was started goes on
// when `run` ends.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CTL_RUN_ALERT_COMMAND_H_
#define TRAINCHECK_CTL_RUN_ALERT_COMMAND_H_

#include <sys/types.h>

#include <cstddef>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

// A training that goes wrong in many ways at once must not call anybody more
// often.
inline constexpr size_t kMaxAlertCommands = 10;

class AlertCommand {
 public:
  // `command`: for /bin/sh; "": none is ever started.
  explicit AlertCommand(std::string command) : command_(std::move(command)) {}
  ~AlertCommand() { Reap(); }
  AlertCommand(const AlertCommand&) = delete;
  AlertCommand& operator=(const AlertCommand&) = delete;

  // With the incident in the environment (AlertVariables). An error says why it
  // was not started; the training is not concerned.
  [[nodiscard]] absl::Status Start(const v1::Violation& lead);

 private:
  void Reap();

  const std::string command_;
  size_t started_ = 0;
  std::vector<pid_t> running_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_ALERT_COMMAND_H_
