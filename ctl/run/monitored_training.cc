#include "ctl/run/monitored_training.h"

#include <unistd.h>

#include <cstdlib>
#include <ctime>
#include <random>

#include "absl/strings/str_cat.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "ctl/run/agent_library.h"
#include "ctl/run/plan_file.h"
#include "ctl/run/start_check.h"
#include "ctl/text/run_id.h"

namespace traincheck::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

void Warn(const std::string& message) {
  WriteToStderr(absl::StrCat("traincheck: ", message, "\n"));
}

std::string VariableOfOurs(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

// People look for their run by name in a list, so the id begins with the
// experiment, or with the script if none is named.
std::string FreshRunId(const TrainingRunOptions& options) {
  std::string name = options.experiment;
  if (name.empty()) name = VariableOfOurs("TRAINCHECK_EXPERIMENT");
  if (name.empty()) name = ProgramName(options.command);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t now_ns = now.tv_sec * 1'000'000'000ull + now.tv_nsec;
  std::random_device random;  // 32 bits each time
  return NewRunId(name, now_ns, uint64_t{random()} << 32 | random());
}

}  // namespace

MonitoredTraining::MonitoredTraining(const TrainingRunOptions& options,
                                     Client* client,
                                     const TrainingSignals& signals)
    : options_(options),
      client_(*client),
      signals_(signals),
      run_(options.run.empty() ? FreshRunId(options) : options.run),
      exit_code_(kExitDone) {}

// All that can be wrong is looked for before the training uses its machines:
// server, sets, run id, agent. Only the plan, which is fetched last, may fail
// without a consequence for the start.
bool MonitoredTraining::Prepare() {
  // A reference run is checked against nothing, also where sets are deployed
  // for its experiment.
  const StartCheck check =
      CheckStart(&client_, {options_.server, run_, options_.check_set,
                            options_.collect ? "" : options_.experiment,
                            options_.silenced, options_.require_server});
  server_answered_ = check.server_answered;
  check_set_ = check.check_set;
  selection_ = check.selection;
  exit_code_ = check.exit_code.value_or(kExitDone);
  // The server is asked first: wrong words are reported also where no agent is
  // installed.
  if (check.exit_code || !FindAgent()) return false;
  plan_ = options_.plan;
  // The plan of the whole selection, deployed sets included: the run is checked
  // against all of it.
  if (server_answered_ && WantsPlanOfSet(selection_, plan_)) {
    plan_ = PlanOrWarning();
  }
  // A Ctrl-C that came meanwhile met no training.
  const int ended_by = signals_.EndedWithin(milliseconds(0));
  if (ended_by != 0) exit_code_ = kExitSignalBase + ended_by;
  return ended_by == 0;
}

// A broken installation must not keep the user's training from starting, unless
// it was started only to be checked.
bool MonitoredTraining::FindAgent() {
  const absl::StatusOr<std::string> library = UsableAgentLibrary();
  if (library.ok()) {
    library_ = *library;
  } else if (options_.require_agent) {
    Complain(
        absl::StrCat("nothing can be checked, and the training was not "
                     "started: ",
                     library.status().message()));
    exit_code_ = kExitTooLittle;
  } else {
    Warn(absl::StrCat("the training runs unmonitored: ",
                      library.status().message()));
  }
  return exit_code_ == kExitDone;
}

// "" where the training has to wait for the server's.
std::string MonitoredTraining::PlanOrWarning() {
  const auto plan = FetchPlanFile(&client_, selection_);
  if (plan.ok()) return *plan;
  Warn(absl::StrCat("could not fetch the capture plan of set ", selection_,
                    ": rules that need its extra records stay unknown: ",
                    plan.status().message()));
  return "";
}

// Variables of a caller (preflight) stand behind those that every monitored
// training gets.
std::vector<std::string> MonitoredTraining::Environment() const {
  MonitoringOptions monitoring;
  monitoring.agent_library = library_;
  monitoring.server = options_.server;
  monitoring.run = run_;
  monitoring.experiment = options_.experiment;
  monitoring.collect = options_.collect;
  monitoring.full = options_.full;
  // What the user asked for, and not selection_: the daemon adds what is
  // deployed when the run begins.
  monitoring.check_set = check_set_;
  monitoring.plan = plan_;
  monitoring.config = options_.config;
  std::vector<Variable> variables =
      MonitoringVariables(monitoring, VariableOfOurs("LD_PRELOAD"));
  variables.insert(variables.end(), options_.variables.begin(),
                   options_.variables.end());
  return ChangedEnvironment(environ, variables);
}

bool MonitoredTraining::Start() {
  const auto pid = StartTraining(
      {options_.command, Environment(), options_.stdout_to_stderr}, signals_);
  if (pid.ok()) {
    pid_ = *pid;
    return true;
  }
  Complain(std::string(pid.status().message()));
  // The codes that a shell has for it.
  exit_code_ = absl::IsNotFound(pid.status()) ? kExitCommandNotFound
                                              : kExitCannotExecute;
  return false;
}

void MonitoredTraining::Wait() {
  exit_code_ = WaitForTraining(pid_, signals_, options_.overseer);
  // Without the agent no server will ever hear of the run.
  if (recorded()) drain_ = WaitForServer();
}

// Drain knows neither clock nor server nor signals; here it gets the real ones.
DrainResult MonitoredTraining::WaitForServer() {
  return Drain({options_.drain_timeout, server_answered_},
               {[this] { return client_.GetRun(run_); },
                [] {
                  return std::chrono::duration_cast<milliseconds>(
                      steady_clock::now().time_since_epoch());
                },
                [this](milliseconds pause) {
                  // A Ctrl-C ends the wait and not this program: the verdict is
                  // printed with what is known by then.
                  return signals_.EndedWithin(pause) != 0;
                }});
}

}  // namespace traincheck::ctl
