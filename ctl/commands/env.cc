#include <cstdlib>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/monitoring_flags.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "ctl/run/agent_library.h"
#include "ctl/run/monitoring_environment.h"
#include "ctl/run/training_settings.h"

namespace traincheck::ctl {
namespace {

// Prints nothing on stdout when the agent cannot be preloaded: what a job
// script evaluates then leaves its trainings as they are.
int Env(const Context& context, MonitoringOptions options) {
  const absl::StatusOr<std::string> library = UsableAgentLibrary();
  if (!library.ok()) {
    Complain(absl::StrCat("env: ", library.status().message()));
    return kExitUsage;
  }
  if (const std::string wrong = TakeSettings(context, &options);
      !wrong.empty()) {
    Complain(absl::StrCat("env: ", wrong));
    return kExitUsage;
  }
  options.agent_library = *library;
  const char* preload = std::getenv("LD_PRELOAD");
  std::cout << ShellLines(MonitoringVariables(options, preload ? preload : ""))
            << std::flush;
  return kExitDone;
}

}  // namespace

void AddEnv(CLI::App* app, const Context* context, Action* action) {
  CLI::App* env = app->add_subcommand(
      "env", "Prints shell lines that put a job script under the agent");
  auto options = std::make_shared<MonitoringOptions>();
  AddMonitoringFlags(env, options.get());
  env->callback([=] { *action = [=] { return Env(*context, *options); }; });
}

}  // namespace traincheck::ctl
