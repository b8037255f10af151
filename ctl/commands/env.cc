#include <chrono>
#include <cstdlib>
#include <iostream>
#include <memory>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/monitoring_flags.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "ctl/run/agent_library.h"
#include "ctl/run/monitoring_environment.h"
#include "ctl/run/plan_file.h"
#include "ctl/run/training_settings.h"

namespace traincheck::ctl {
namespace {

// A job must not wait long for a server that may be down.
constexpr std::chrono::milliseconds kAnswerTimeout{2000};

absl::StatusOr<std::string> FetchPlan(const MonitoringOptions& options) {
  auto client = Client::Make(options.server, kAnswerTimeout);
  if (!client.ok()) return client.status();
  // By what the daemon would check such a run against, deployed sets included:
  // the plan has to record for these rules as well.
  const absl::StatusOr<std::string> selection =
      (*client)->GetSelection(options.experiment, options.check_set);
  if (!selection.ok()) return selection.status();
  return FetchPlanFile(client->get(), *selection);
}

// "" where the training has to wait for the server's.
std::string PlanOrWarning(const MonitoringOptions& options) {
  const absl::StatusOr<std::string> plan = FetchPlan(options);
  if (plan.ok()) return *plan;
  Complain(absl::StrCat("env: could not fetch the capture plan of set ",
                        options.check_set,
                        ": rules that need its extra records stay unknown: ",
                        plan.status().message()));
  return "";
}

// Prints nothing on stdout when the agent cannot be preloaded: what a job
// script evaluates then leaves its trainings as they are.
// Unlike `run`, which starts the training itself, this only prints variables:
// the job's shell sets them, and its launcher passes them on to all ranks.
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
  if (WantsPlanOfSet(options.check_set, options.plan)) {
    options.plan = PlanOrWarning(options);
  }
  // What the job preloads itself stays, behind the agent's library.
  const char* preload = std::getenv("LD_PRELOAD");
  std::cout << ShellLines(MonitoringVariables(options, preload ? preload : ""))
            << std::flush;
  return kExitDone;
}

}  // namespace

void AddEnv(CLI::App* env, const Context* context, Action* action) {
  auto options = std::make_shared<MonitoringOptions>();
  AddMonitoringFlags(env, options.get());
  env->callback([=] { *action = [=] { return Env(*context, *options); }; });
}

}  // namespace traincheck::ctl
