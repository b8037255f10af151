#include <unistd.h>

#include <memory>
#include <string>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/check_result.h"
#include "ctl/text/progress_line.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::string run;
  std::string set;
  bool fail_on_violation = false;
};

int Check(const Context& context, const Options& options) {
  v1::CheckRunRequest request;
  request.set_run(options.run);
  request.set_set(options.set);
  bool violated = false;
  const auto ask = [&](Client& client) {
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    auto result = client.CheckRun(request, [&](double fraction) {
      line.Update("checking " + options.run, fraction);
    });
    violated = result.ok() && !result->violations().empty();
    return result;
  };
  const int code = Query<v1::CheckResult>(
      context, ask, {CheckResultText, [](const auto& result) {
                       return PrettyJson(CheckResultJson(result));
                     }});
  if (code != kExitDone || !violated || !options.fail_on_violation) return code;
  return kExitViolations;
}

}  // namespace

void AddCheck(CLI::App* app, const Context* context, Action* action) {
  CLI::App* check = app->add_subcommand(
      "check", "Checks a stored run against a set of invariants");
  auto options = std::make_shared<Options>();
  check->add_option("--run", options->run, "Run that has ended")->required();
  check->add_option("--set", options->set, "Name of the set")->required();
  check->add_flag("--fail-on-violation", options->fail_on_violation,
                  "Exit with 10 if an invariant is violated");
  check->callback([=] { *action = [=] { return Check(*context, *options); }; });
}

}  // namespace traincheck::ctl
