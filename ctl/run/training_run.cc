#include "ctl/run/training_run.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <optional>

#include "absl/strings/str_cat.h"
#include "ctl/client.h"
#include "ctl/context.h"
#include "ctl/exit_codes.h"
#include "ctl/render/grade.h"
#include "ctl/report.h"
#include "ctl/run/alert_command.h"
#include "ctl/run/left_aside.h"
#include "ctl/run/left_out.h"
#include "ctl/run/verdict.h"
#include "ctl/run/violation_printer.h"
#include "ctl/run/violation_watch.h"
#include "ctl/text/shell_quote.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

// A server that hangs must not hold the training up for longer.
constexpr std::chrono::milliseconds kAnswerTimeout{2000};

// `text` on stderr, `word` in colour if stderr takes any.
void Alarm(const std::string& text, const std::string& word) {
  WriteToStderr(MayColour(STDERR_FILENO) ? WithAlarm(text, word) : text);
}

// How the commands that the verdict names reach this server.
std::string CtlCommand(const std::string& server) {
  const char* const variable = std::getenv("TRAINCHECK_SERVER");
  std::string usual = variable == nullptr ? "" : variable;
  if (usual.empty()) usual = DefaultAddress();
  if (server == usual) return "traincheckctl";
  return absl::StrCat("traincheckctl --server ", ShellQuote(server));
}

// A monitored training, and what the user sees of it. The methods are called in
// their order.
class TrainingRun {
 public:
  TrainingRun(const TrainingRunOptions& options, Client* client,
              const TrainingSignals& signals)
      : options_(options),
        client_(*client),
        training_(options, client, signals) {}

  // False: exit_code() says why the training does not run.
  bool Train() {
    const bool started = training_.Prepare() && training_.Start();
    if (started) {
      // Ends before Conclude, so that only one thread prints the verdict.
      std::optional<ViolationWatch> watch;
      if (!training_.selection().empty() && training_.recorded()) {
        watch.emplace(&client_, training_.run(), &printer_);
      }
      training_.Wait();
    }
    exit_code_ = training_.exit_code();
    return started;
  }

  // Prints what the server found, and judges by it.
  void Conclude() {
    if (training_.drain()) PrintVerdict();
    // The training's own failure comes first: scripts look at its code,
    // whatever was found.
    if (exit_code_ != kExitDone) return;
    const GateResult gate = PassGate(options_.gate, Findings());
    exit_code_ = gate.code;
    if (!gate.reason.empty()) {
      WriteToStderr(absl::StrCat("traincheck: ", gate.reason, "\n"));
    }
  }

  int exit_code() const { return exit_code_; }

 private:
  void PrintVerdict() {
    const std::optional<v1::Run>& run = training_.drain()->run;
    // The server may have more deployed for an experiment that the agent named.
    const std::string& set = run && !run->check_set().empty()
                                 ? run->check_set()
                                 : training_.selection();
    VerdictInput input{training_.run(),
                       set,
                       *training_.drain(),
                       {},
                       "",
                       LeftOutOf(&client_, set, options_.silenced),
                       CtlCommand(options_.server)};
    if (run && !set.empty()) {
      auto violations = client_.ListViolations(training_.run());
      if (violations.ok()) {
        input.violations = *std::move(violations);
        alerts_ = CountAlerts(input.violations);
      }
      input.left_aside =
          WhyLeftAside(&client_, set, run->experiment(), run->check());
    }
    // What the watch has missed; the printer prints each incident once.
    for (const v1::Violation& violation : input.violations) {
      printer_.Print(violation);
    }
    Alarm(VerdictText(input), "NOTHING CHECKED");
  }

  void Call(const v1::Violation& lead) {
    // One that cannot be started is reported, and the training goes on.
    const absl::Status started = on_alert_.Start(lead);
    if (started.ok()) return;
    WriteToStderr(absl::StrCat("traincheck: ", started.message(), "\n"));
  }

  GateFindings Findings() {
    GateFindings findings;
    findings.violations = printer_.alerts();
    if (!training_.drain() || !training_.drain()->run) return findings;
    const v1::CheckProgress& check = training_.drain()->run->check();
    // What is silenced by now counts no more, whenever it was printed. Where
    // nobody says which are alerts, all are.
    return FindingsOf(check, alerts_.value_or(std::max<size_t>(
                                 findings.violations, check.violated())));
  }

  const TrainingRunOptions& options_;
  Client& client_;
  MonitoredTraining training_;
  ViolationPrinter printer_{
      options_.verbose,
      [](const std::string& block) { Alarm(block, "VIOLATION"); },
      [this](const v1::Violation& lead) { Call(lead); }};
  AlertCommand on_alert_{options_.on_alert};
  // At the end; none: the server did not say.
  std::optional<size_t> alerts_;
  int exit_code_ = kExitDone;
};

}  // namespace

int RunTraining(const TrainingRunOptions& options) {
  // Before the client's threads, which inherit the mask.
  const TrainingSignals signals;
  auto client = Client::Make(options.server, kAnswerTimeout);
  if (!client.ok()) return ReportFailedCall(client.status(), options.server);
  TrainingRun run(options, client->get(), signals);
  if (run.Train()) run.Conclude();
  return run.exit_code();
}

}  // namespace traincheck::ctl
