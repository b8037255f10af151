// `traincheckctl run`: starts a training under the agent and tells on stderr
// what the server finds. The training always starts, unless the user's words
// are wrong or --require-server asks for a server.
#ifndef TRAINCHECK_CTL_RUN_TRAINING_RUN_H_
#define TRAINCHECK_CTL_RUN_TRAINING_RUN_H_

#include <chrono>
#include <string>
#include <vector>

#include "ctl/run/gate.h"

namespace traincheck::ctl {

struct TrainingRunOptions {
  std::string server;
  std::vector<std::string> command;
  std::string experiment;
  std::string run;  // empty: a new id
  bool collect = false;
  bool full = false;
  std::string check_set;
  bool without_builtin = false;
  std::string plan;    // empty: the usual one
  std::string config;  // file of settings; empty: none
  bool require_server = false;
  bool verbose = false;  // advice is printed as it comes, too
  GateOptions gate;
  std::chrono::milliseconds drain_timeout{60'000};
};

// Returns the exit code of this program. REQUIRES: called from the main
// thread while there is no other.
int RunTraining(const TrainingRunOptions& options);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_TRAINING_RUN_H_
