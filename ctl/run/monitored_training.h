// A training under the agent: what has to be known of the server before it
// starts, its process, and the wait for the server's judgement. It prints
// warnings only; what was found is for others to tell.
//
//   MonitoredTraining training(options, client, signals);
//   if (training.Prepare() && training.Start()) training.Wait();
//
// Threads: the main thread only.
#ifndef TRAINCHECK_CTL_RUN_MONITORED_TRAINING_H_
#define TRAINCHECK_CTL_RUN_MONITORED_TRAINING_H_

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "ctl/client.h"
#include "ctl/run/drain.h"
#include "ctl/run/gate.h"
#include "ctl/run/monitoring_environment.h"
#include "ctl/run/repository_file.h"
#include "ctl/run/training_process.h"

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
  std::vector<SilencedRule> silenced;  // check_set leaves them out
  std::string plan;                    // empty: the usual one
  std::string config;                  // file of settings; empty: none
  bool require_server = false;
  // Nor without the agent (exit code 11).
  bool require_agent = false;
  bool verbose = false;  // advice is printed as it comes, too
  std::string on_alert;  // command for each alert; empty: none
  GateOptions gate;
  std::chrono::milliseconds drain_timeout{60'000};
  std::vector<Variable> variables;  // further ones of the training
  bool stdout_to_stderr = false;    // what the training prints
  Overseer overseer;                // none: it is waited for
};

class MonitoredTraining {
 public:
  // REQUIRES: all outlive it.
  MonitoredTraining(const TrainingRunOptions& options, Client* client,
                    const TrainingSignals& signals);

  // False: exit_code() says why the training must not start, the user has been
  // told.
  bool Prepare();

  // False: it cannot be started, as Prepare.
  bool Start();

  // Until the training has ended and the server has judged it.
  void Wait();

  // Of the training, once Wait has returned.
  int exit_code() const { return exit_code_; }
  const std::string& run() const { return run_; }
  // What it is checked against, as far as is known before it starts.
  const std::string& selection() const { return selection_; }
  // False: it runs without the agent.
  bool recorded() const { return !library_.empty(); }
  // None: nothing was recorded, or Wait has not returned.
  const std::optional<DrainResult>& drain() const { return drain_; }

 private:
  bool FindAgent();
  std::string PlanOrWarning();
  std::vector<std::string> Environment() const;
  DrainResult WaitForServer();

  const TrainingRunOptions& options_;
  Client& client_;
  const TrainingSignals& signals_;
  const std::string run_;
  std::string check_set_;  // what it asks for
  std::string selection_;
  std::string library_;
  std::string plan_;  // file
  bool server_answered_ = false;
  pid_t pid_ = -1;
  std::optional<DrainResult> drain_;
  int exit_code_;
};

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_MONITORED_TRAINING_H_
