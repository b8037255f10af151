#include "ctl/run/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <ctime>
#include <memory>
#include <optional>
#include <random>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/exit_codes.h"
#include "ctl/render/grade.h"
#include "ctl/report.h"
#include "ctl/run/agent_library.h"
#include "ctl/run/drain.h"
#include "ctl/run/left_aside.h"
#include "ctl/run/monitoring_environment.h"
#include "ctl/run/plan_file.h"
#include "ctl/run/preflight.h"
#include "ctl/run/training_process.h"
#include "ctl/run/verdict.h"
#include "ctl/run/violation_printer.h"
#include "ctl/run/violation_watch.h"
#include "ctl/text/run_id.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;

// A server that hangs must not hold the training up for longer.
constexpr milliseconds kAnswerTimeout{2000};

void Warn(const std::string& message) {
  WriteToStderr(absl::StrCat("traincheck: ", message, "\n"));
}

// `text` on stderr, `word` in colour if stderr takes any.
void Alarm(const std::string& text, const std::string& word) {
  WriteToStderr(MayColour(STDERR_FILENO) ? WithAlarm(text, word) : text);
}

std::string Environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::string FreshRunId(const TrainingRunOptions& options) {
  std::string name = options.experiment;
  if (name.empty()) name = Environment("TRAINCHECK_EXPERIMENT");
  if (name.empty()) name = ProgramName(options.command);
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  const uint64_t now_ns = now.tv_sec * 1'000'000'000ull + now.tv_nsec;
  return NewRunId(name, now_ns, static_cast<uint16_t>(std::random_device()()));
}

// "" where the agent cannot be preloaded, after a warning.
std::string LibraryOrWarning() {
  const absl::StatusOr<std::string> library = UsableAgentLibrary();
  if (library.ok()) return *library;
  Warn(absl::StrCat("the training runs unmonitored: ",
                    library.status().message()));
  return "";
}

std::vector<std::string> TrainingEnvironment(const TrainingRunOptions& options,
                                             const std::string& run,
                                             const std::string& check_set,
                                             const std::string& library,
                                             const std::string& plan) {
  MonitoringOptions monitoring;
  monitoring.agent_library = library;
  monitoring.server = options.server;
  monitoring.run = run;
  monitoring.experiment = options.experiment;
  monitoring.collect = options.collect;
  monitoring.full = options.full;
  monitoring.check_set = check_set;
  monitoring.plan = plan;
  monitoring.config = options.config;
  return ChangedEnvironment(
      environ, MonitoringVariables(monitoring, Environment("LD_PRELOAD")));
}

// How the commands that the verdict names reach this server.
std::string CtlCommand(const std::string& server) {
  std::string usual = Environment("TRAINCHECK_SERVER");
  if (usual.empty()) usual = kDefaultServer;
  if (server == usual) return "traincheckctl";
  return absl::StrCat("traincheckctl --server ", ShellQuote(server));
}

// One monitored training, in the order of its methods.
class TrainingRun {
 public:
  TrainingRun(const TrainingRunOptions& options, Client* client,
              const TrainingSignals& signals)
      : options_(options),
        client_(*client),
        signals_(signals),
        run_(options.run.empty() ? FreshRunId(options) : options.run) {}

  // False: exit_code() says why the training must not start.
  bool Prepare() {
    const PreflightResult preflight =
        Preflight(&client_, {options_.server, options_.run, options_.check_set,
                             options_.require_server});
    server_answered_ = preflight.server_answered;
    check_set_ = preflight.check_set;
    exit_code_ = preflight.exit_code.value_or(kExitDone);
    if (preflight.exit_code) return false;
    library_ = LibraryOrWarning();
    plan_ = options_.plan;
    if (server_answered_ && WantsPlanOfSet(check_set_, plan_)) {
      plan_ = PlanOrWarning();
    }
    // A Ctrl-C that came meanwhile met no training.
    const int ended_by = signals_.EndedWithin(milliseconds(0));
    if (ended_by != 0) exit_code_ = kExitSignalBase + ended_by;
    return ended_by == 0;
  }

  void Train() {
    const auto pid = StartTraining(
        options_.command,
        TrainingEnvironment(options_, run_, check_set_, library_, plan_),
        signals_);
    if (!pid.ok()) {
      Complain(std::string(pid.status().message()));
      exit_code_ = absl::IsNotFound(pid.status()) ? kExitCommandNotFound
                                                  : kExitCannotExecute;
      return;
    }
    std::optional<ViolationWatch> watch;
    if (!check_set_.empty() && !library_.empty()) {
      watch.emplace(&client_, run_, &printer_);
    }
    exit_code_ = WaitForTraining(*pid, signals_);
    if (!library_.empty()) drain_ = WaitForServer();
  }

  // Prints what the server found, and judges by it.
  void Conclude() {
    if (drain_) PrintVerdict();
    if (exit_code_ != kExitDone) return;
    const GateResult gate = PassGate(options_.gate, Findings());
    exit_code_ = gate.code;
    if (!gate.reason.empty()) Warn(gate.reason);
  }

  int exit_code() const { return exit_code_; }

 private:
  // "" where the training has to wait for the server's.
  std::string PlanOrWarning() {
    const auto plan = FetchPlanFile(&client_, check_set_);
    if (plan.ok()) return *plan;
    Warn(absl::StrCat(
        "the plan of set ", check_set_,
        " is not there when the training starts: what it names beyond the "
        "plan without it stays unrecorded, and rules on that unknown: ",
        plan.status().message()));
    return "";
  }

  void PrintVerdict() {
    VerdictInput input{run_, check_set_, *drain_,
                       {},   "",         CtlCommand(options_.server)};
    if (drain_->run && !check_set_.empty()) {
      auto violations = client_.ListViolations(run_);
      if (violations.ok()) {
        input.violations = *std::move(violations);
        alerts_ = CountAlerts(input.violations);
      }
      input.left_aside =
          WhyLeftAside(&client_, check_set_, drain_->run->experiment(),
                       drain_->run->check());
    }
    for (const v1::Violation& violation : input.violations) {
      printer_.Print(violation);
    }
    Alarm(VerdictText(input), "NOTHING CHECKED");
  }

  GateFindings Findings() {
    GateFindings findings;
    findings.violations = printer_.alerts();
    if (!drain_ || !drain_->run) return findings;
    const v1::CheckProgress& check = drain_->run->check();
    // Where nobody says which are alerts, all are.
    findings.violations = std::max<size_t>(findings.violations,
                                           alerts_.value_or(check.violated()));
    findings.decided = check.decided();
    findings.total = check.total();
    findings.finished = check.finished();
    return findings;
  }

  DrainResult WaitForServer() {
    return Drain({options_.drain_timeout, server_answered_},
                 {[this] { return client_.GetRun(run_); },
                  [] {
                    return std::chrono::duration_cast<milliseconds>(
                        steady_clock::now().time_since_epoch());
                  },
                  [this](milliseconds pause) {
                    return signals_.EndedWithin(pause) != 0;
                  }});
  }

  const TrainingRunOptions& options_;
  Client& client_;
  const TrainingSignals& signals_;
  const std::string run_;
  std::string check_set_;
  std::string library_;
  std::string plan_;  // file
  bool server_answered_ = false;
  ViolationPrinter printer_{options_.verbose, [](const std::string& block) {
                              Alarm(block, "VIOLATION");
                            }};
  // At the end; none: the server did not say.
  std::optional<size_t> alerts_;
  std::optional<DrainResult> drain_;
  int exit_code_ = kExitDone;
};

}  // namespace

int RunTraining(const TrainingRunOptions& options) {
  // Before the client's threads, which inherit the mask.
  const TrainingSignals signals;
  auto client = Client::Make(options.server, kAnswerTimeout);
  if (!client.ok()) return ReportFailedCall(client.status(), options.server);
  TrainingRun run(options, client->get(), signals);
  if (run.Prepare()) {
    run.Train();
    run.Conclude();
  }
  return run.exit_code();
}

}  // namespace traincheck::ctl
