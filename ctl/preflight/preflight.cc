#include "ctl/preflight/preflight.h"

#include <unistd.h>

#include <chrono>
#include <iostream>
#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/exit_codes.h"
#include "ctl/preflight/families.h"
#include "ctl/preflight/private_daemon.h"
#include "ctl/preflight/progress.h"
#include "ctl/preflight/temporary_folder.h"
#include "ctl/render/grade.h"
#include "ctl/render/incident.h"
#include "ctl/render/junit.h"
#include "ctl/render/preflight.h"
#include "ctl/render/sarif.h"
#include "ctl/report.h"
#include "ctl/run/gate.h"
#include "ctl/run/left_out.h"
#include "ctl/run/training_settings.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/terminal.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::ctl {
namespace {

// What the agent writes of hand-made backwards, in a folder for it.
constexpr char kProbeFile[] = "probed.jsonl";

void Say(const std::string& message) {
  WriteToStderr(absl::StrCat("traincheck: ", message, "\n"));
}

// Only text may be coloured: the other formats are read by programs.
std::string Rendered(const PreflightReport& report, ReportFormat format) {
  switch (format) {
    case ReportFormat::kJson:
      return PrettyJson(PreflightJson(report));
    case ReportFormat::kJUnit:
      return JUnitReport(report);
    case ReportFormat::kSarif:
      return PrettyJson(SarifReport(report));
    case ReportFormat::kText:
      break;
  }
  const std::string text = PreflightText(report);
  return MayColour(STDOUT_FILENO) ? WithAlarm(text, "VIOLATION") : text;
}

// What the training gets besides what every monitored one does.
std::vector<Variable> VariablesOf(const PreflightOptions& options,
                                  const PrivateDaemon* daemon,
                                  const TemporaryFolder* probes) {
  std::vector<Variable> variables;
  if (probes != nullptr) {
    variables.push_back({"TRAINCHECK_PROBE", probes->Path(kProbeFile)});
  }
  // With --keep-going it is removed, in case the environment has one.
  std::optional<std::string> stop;
  if (!options.keep_going) stop = std::to_string(options.steps);
  variables.push_back({"TRAINCHECK_STOP_AFTER", stop});
  // Each of so few steps is looked at, unless the user wants it otherwise.
  if (SettingOfTraining(options.training.config, "TRAINCHECK_BUDGET").empty()) {
    variables.push_back({"TRAINCHECK_BUDGET", "off"});
  }
  if (daemon != nullptr) {
    // A relay also delivers what others have left in its folder; that is not
    // for a daemon which is gone in a minute.
    variables.push_back({"TRAINCHECK_SPOOL_DIR", daemon->spool_folder()});
    // The daemon ends with this program: a relay that tried on for the usual
    // 30 s would try in vain.
    variables.push_back({"TRAINCHECK_GRACE", "2"});
  }
  return variables;
}

// One training from its start to the report.
class PreflightRun {
 public:
  // probes: absent, if nobody asked.
  PreflightRun(const PreflightOptions& options, Client* client,
               const TrainingSignals& signals, const TemporaryFolder* probes)
      : options_(options),
        client_(*client),
        probes_(probes),
        // training_ is made later, but its run is asked for only while the
        // training goes on.
        overseer_(options.steps,
                  {[this] { return client_.GetRun(training_.run()); },
                   [] {
                     return std::chrono::duration_cast<StopOverseer::Time>(
                         std::chrono::steady_clock::now().time_since_epoch());
                   }}),
        training_options_(WithOverseer()),
        training_(training_options_, client, signals) {}

  // Returns the exit code.
  int Run() {
    if (!training_.Prepare()) return training_.exit_code();
    // Unlike a run, a preflight has no use without rules, and its exit code
    // must not say that all is well.
    if (training_.selection().empty()) {
      Complain("nothing can be checked, and the training was not started");
      return kExitTooLittle;
    }
    if (!training_.Start()) return training_.exit_code();
    training_.Wait();
    // While the client still reaches the daemon: a private one ends with this
    // program.
    const PreflightReport report = Report();
    std::cout << Rendered(report, options_.format) << std::flush;
    return Judge(report);
  }

 private:
  TrainingRunOptions WithOverseer() {
    TrainingRunOptions options = options_.training;
    if (!options_.keep_going) {
      options.overseer = [this] { return overseer_.SignalDue(); };
    }
    return options;
  }

  PreflightReport Report() {
    PreflightReport report;
    report.run.set_id(training_.run());
    if (probes_ != nullptr)
      report.probed = ProbedFunctions(probes_->Read(kProbeFile));
    const DrainResult& drain = *training_.drain();
    if (!drain.run) {
      // A daemon that does not know the run has got nothing: the agent was not
      // there, or was off.
      report.problem = absl::IsNotFound(drain.status)
                           ? "no process of the training recorded anything: "
                             "does it import torch, does it keep the "
                             "environment that it is given, and does "
                             "TRAINCHECK_DISABLE not switch the agent off?"
                           : std::string(drain.status.message());
      return report;
    }
    report.run = *drain.run;
    if (!drain.finished) report.problem = "the check has not finished";
    if (!report.run.check().error().empty()) {
      report.problem = report.run.check().error();
    }
    report.families = FamiliesOfRules();
    report.left_out =
        LeftOutOf(&client_, report.run.check_set(), training_options_.silenced);
    AddFindings(&report);
    return report;
  }

  // Violations come from the live check and verdicts from a check of what is
  // stored.
  void AddFindings(PreflightReport* report) {
    auto findings = client_.ListViolations(training_.run());
    if (findings.ok()) report->findings = *std::move(findings);
    const std::string silenced =
        SilencedText(RemoveSilenced(&report->findings),
                     absl::StrCat("traincheckctl violations list --all --run ",
                                  ShellQuote(training_.run())));
    if (!silenced.empty()) report->left_out.push_back(silenced);
    AlertsFirst(&report->findings);
    // Verdicts rule by rule come only from a check of the stored run; the live
    // check has sums.
    v1::CheckRunRequest request;
    request.set_run(training_.run());
    request.set_set(training_.selection());
    const auto result = client_.CheckRun(request, [](double) {});
    // The report then has the findings of the live check without the verdicts.
    if (!result.ok()) return;
    report->verdicts = {result->verdicts().begin(), result->verdicts().end()};
  }

  // Did the training end because we wanted it to?
  bool WasStopped(const v1::Run& run) const {
    return !options_.keep_going &&
           (overseer_.has_ended_it() || AllReached(run, options_.steps));
  }

  // Did a rank end because we wanted it to, and others not reach their step?
  bool LostARank(const v1::Run& run) const {
    return !WasStopped(run) && !options_.keep_going &&
           AnyEndedThere(run, options_.steps);
  }

  // A training that fails by itself gives the exit code: a gate on findings
  // must not hide that the script does not run. Where it was ended from here,
  // its code says nothing, and the findings decide.
  // Three questions in this order: did the training fail by itself, was it
  // ended from here, and if neither keeps us from judging, does the gate pass?
  int Judge(const PreflightReport& report) {
    const int code = training_.exit_code();
    if (overseer_.has_ended_it()) {
      Say("the training went on after its ranks were through, and was ended");
    }
    if (code != kExitDone && LostARank(report.run)) {
      Say(absl::StrCat(
          "the training ended with exit code ", code,
          " after a rank had been ended at its step ", options_.steps,
          ": the others may wait for it (--keep-going lets all of them run)"));
    } else if (code != kExitDone && !WasStopped(report.run)) {
      Say(code > kExitSignalBase
              ? absl::StrCat("the training was ended by signal ",
                             code - kExitSignalBase)
              : absl::StrCat("the training failed by itself: exit code ",
                             code));
      return code;
    }
    const v1::CheckProgress& check = report.run.check();
    const size_t wrong = report.probed ? CountDiffering(*report.probed) : 0;
    const GateResult gate =
        PassGate({true, options_.min_coverage, "preflight"},
                 FindingsOf(check, CountAlerts(report.findings) + wrong));
    if (!gate.reason.empty()) Say(gate.reason);
    return gate.code;
  }

  const PreflightOptions& options_;
  Client& client_;
  const TemporaryFolder* const probes_;
  StopOverseer overseer_;
  const TrainingRunOptions training_options_;
  MonitoredTraining training_;
};

}  // namespace

int RunPreflight(PreflightOptions options) {
  // Before all threads, which inherit the mask.
  const TrainingSignals signals;
  TrainingRunOptions& training = options.training;
  std::unique_ptr<PrivateDaemon> daemon;
  if (training.server.empty()) {
    int ended_by = 0;
    auto started = PrivateDaemon::Start(signals, &ended_by);
    if (ended_by != 0) return kExitSignalBase + ended_by;
    if (!started.ok()) {
      Complain(absl::StrCat("preflight: the training was not started: ",
                            started.status().message()));
      return kExitUnreachable;
    }
    daemon = *std::move(started);
    training.server = daemon->address();
  }
  // Behind the daemon, which is forked: the client's threads may hold locks
  // that a child would find held for ever.
  auto client = Client::Make(training.server);
  if (!client.ok()) return ReportFailedCall(client.status(), training.server);
  training.check_set = Without(training.silenced, kBuiltInSet);
  // Without either nothing is checked. stdout is for the report.
  training.require_server = training.require_agent = true;
  training.stdout_to_stderr = true;
  std::unique_ptr<TemporaryFolder> probes;
  if (options.probe) {
    auto made = TemporaryFolder::Make();
    if (!made.ok()) {
      Complain(absl::StrCat("preflight: the training was not started: ",
                            made.status().message()));
      return kExitUnreachable;
    }
    probes = *std::move(made);
  }
  training.variables = VariablesOf(options, daemon.get(), probes.get());
  return PreflightRun(options, client->get(), signals, probes.get()).Run();
}

}  // namespace traincheck::ctl
