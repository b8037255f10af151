#include <unistd.h>

#include <memory>
#include <string>

#include "ctl/commands/commands.h"
#include "ctl/commands/compat_check.h"
#include "ctl/commands/gate_flags.h"
#include "ctl/commands/query.h"
#include "ctl/render/check_result.h"
#include "ctl/render/grade.h"
#include "ctl/run/left_aside.h"
#include "ctl/text/progress_line.h"
#include "invariants/sets/set_ref.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::string run;
  std::string set = kBuiltInSet;
  GateOptions gate;
  CompatCheckOptions compat;
};

// On stderr, beside the result: why rules were left aside.
void SayWhatWasLeftAside(Client* client, const v1::CheckResult& result) {
  const auto run = client->GetRun(result.run());
  // Only an explanation: the result stands without it.
  if (!run.ok()) return;
  const std::string why =
      WhyLeftAside(client, result.set(), run->experiment(), result.coverage());
  if (!why.empty()) Complain(why + " when it is recorded");
}

int Check(const Context& context, const Options& options) {
  v1::CheckRunRequest request;
  request.set_run(options.run);
  request.set_set(options.set);
  GateFindings findings;
  // The gate needs the answer itself, of which Query returns only an exit code.
  const auto ask = [&](Client& client) {
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    auto result = client.CheckRun(request, [&](double fraction) {
      line.Update("checking " + options.run, fraction);
    });
    if (!result.ok()) return result;
    findings =
        FindingsOf(result->coverage(), CountAlerts(result->violations()));
    SayWhatWasLeftAside(&client, *result);
    return result;
  };
  const int code = Query<v1::CheckResult>(
      context, ask, {CheckResultText, [](const auto& result) {
                       return PrettyJson(CheckResultJson(result));
                     }});
  // No answer, and nothing that a gate could judge.
  if (code != kExitDone) return code;
  const GateResult gate = PassGate(options.gate, findings);
  if (!gate.reason.empty()) Complain(gate.reason);
  return gate.code;
}

// --compat names the files instead of a run and a set.
void AddCompat(CLI::App* check, CompatCheckOptions* options) {
  CLI::Option* compat =
      check
          ->add_option("--compat", options->compat,
                       "traincheck: TrainCheck's own verdicts on its own "
                       "files, without a server")
          ->check(CLI::IsMember({"traincheck"}))
          ->excludes(check->get_option("--run"))
          ->excludes(check->get_option("--set"));
  check
      ->add_option("--trace", options->trace,
                   "With --compat: folder with trace_* files")
      ->needs(compat);
  check
      ->add_option("--invariants", options->invariants,
                   "With --compat: TrainCheck's invariant file; -: stdin")
      ->needs(compat);
}

// REQUIRES: they are parsed.
// Thrown as the parser throws, so that the message and the hint at --help are
// the same.
void NeedWhatIsChecked(const Options& options) {
  // required() would ask for them in any case; which are needed depends on
  // --compat.
  const bool compat = !options.compat.compat.empty();
  if (!compat && options.run.empty()) throw CLI::RequiredError("--run");
  if (compat && options.compat.trace.empty()) {
    throw CLI::RequiredError("--trace");
  }
  if (compat && options.compat.invariants.empty()) {
    throw CLI::RequiredError("--invariants");
  }
}

}  // namespace

void AddCheck(CLI::App* check, const Context* context, Action* action) {
  auto options = std::make_shared<Options>();
  check->add_option("--run", options->run, "Run that has ended");
  check->add_option("--set", options->set, "Name of the set, or several: A,B")
      ->capture_default_str();
  AddGateFlags(check, &options->gate);
  AddCompat(check, &options->compat);
  check->callback([=] {
    NeedWhatIsChecked(*options);
    *action = [=] {
      return options->compat.compat.empty()
                 ? Check(*context, *options)
                 : CompatCheck(*context, options->compat, options->gate);
    };
  });
}

}  // namespace traincheck::ctl
