#include <chrono>
#include <cmath>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/gate_flags.h"
#include "ctl/commands/monitoring_flags.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "ctl/run/training_run.h"
#include "ctl/run/training_settings.h"

namespace traincheck::ctl {
namespace {

// A day, which in milliseconds is far from any overflow.
constexpr double kMaxDrainTimeoutS = 86400;

struct Options {
  TrainingRunOptions training;
  double drain_timeout_s = 60;
};

int Run(const Context& context, Options options) {
  // "--" with nothing behind it. Words without the dashes were refused before
  // (WhatIsWrongWithCommand).
  if (context.command.empty()) {
    Complain("run: the training's command line goes after \"--\"");
    return kExitUsage;
  }
  TrainingRunOptions& training = options.training;
  if (const std::string wrong = TakeSettings(context, &training);
      !wrong.empty()) {
    Complain(absl::StrCat("run: the training was not started: ", wrong));
    return kExitUsage;
  }
  // Refused before the training starts: at its end, perhaps days later, the
  // gate could only fail.
  if (training.gate.asked_for() && training.check_set.empty()) {
    Complain(
        "run: --fail-on-violation and --min-coverage need rules: the built-in "
        "ones, or --check SET");
    return kExitUsage;
  }
  training.command = context.command;
  training.drain_timeout =
      std::chrono::milliseconds(std::llround(options.drain_timeout_s * 1000));
  return RunTraining(training);
}

}  // namespace

void AddRun(CLI::App* run, const Context* context, Action* action) {
  auto options = std::make_shared<Options>();
  AddMonitoringFlags(run, &options->training);
  run->add_flag("--require-server", options->training.require_server,
                "Do not start without the server (exit code 4)");
  run->add_flag("-v,--verbose", options->training.verbose,
                "Show advice as it comes, too");
  run->add_option("--on-alert", options->training.on_alert,
                  "Shell command to start for each alert, with the incident in "
                  "TRAINCHECK_ALERT_RUN, _INCIDENT, _HEADLINE, _SITE, _STEP "
                  "and _RANKS; at most 10 times a run");
  AddGateFlags(run, &options->training.gate);
  run->add_option("--drain-timeout", options->drain_timeout_s,
                  "Seconds to wait for the verdict afterwards")
      ->capture_default_str()
      ->check(CLI::Range(0.0, kMaxDrainTimeoutS));
  run->callback([=] { *action = [=] { return Run(*context, *options); }; });
}

}  // namespace traincheck::ctl
