#include <unistd.h>

#include <memory>
#include <optional>
#include <string>

#include "ctl/commands/commands.h"
#include "ctl/commands/id_prefix.h"
#include "ctl/commands/query.h"
#include "ctl/render/comparison.h"
#include "ctl/text/progress_line.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::string run_a;
  std::string run_b;
  std::optional<uint32_t> attempt_a;
  std::optional<uint32_t> attempt_b;
};

// The daemon compares runs by whole ids; people type the first letters.
absl::StatusOr<std::string> WholeId(Client* client, const std::string& id) {
  const absl::StatusOr<v1::Run> run = GetByPrefix<v1::Run>(
      id, [&](const std::string& whole) { return client->GetRun(whole); },
      [&] { return client->ListRunsByPrefix(id); });
  if (!run.ok()) return run.status();
  return run->id();
}

int CodeOf(const v1::CompareRunsResult& result) {
  // First: another number of ranks is a difference also where no step could be
  // compared.
  if (Differs(result)) return kExitDifferent;
  return WasCompared(result) ? kExitDone : kExitTooLittle;
}

int Compare(const Context& context, const Options& options) {
  // Set by `ask`, because Query returns only whether there was an answer.
  int code = kExitDone;
  const auto ask =
      [&](Client& client) -> absl::StatusOr<v1::CompareRunsResult> {
    v1::CompareRunsRequest request;
    const auto a = WholeId(&client, options.run_a);
    if (!a.ok()) return a.status();
    const auto b = WholeId(&client, options.run_b);
    if (!b.ok()) return b.status();
    request.set_run_a(*a);
    request.set_run_b(*b);
    // Without an attempt the daemon takes the last one that trained.
    if (options.attempt_a) request.set_attempt_a(*options.attempt_a);
    if (options.attempt_b) request.set_attempt_b(*options.attempt_b);
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    // The daemon reads both runs from their first batch on, so progress is
    // shown.
    auto result = client.CompareRuns(request, [&](double fraction) {
      line.Update("comparing " + *a + " and " + *b, fraction);
    });
    if (result.ok()) code = CodeOf(*result);
    return result;
  };
  const int asked = Query<v1::CompareRunsResult>(
      context, ask, {ComparisonText, [](const auto& result) {
                       return PrettyJson(ComparisonJson(result));
                     }});
  return asked == kExitDone ? code : asked;
}

}  // namespace

void AddCompare(CLI::App* compare, const Context* context, Action* action) {
  auto options = std::make_shared<Options>();
  compare
      ->add_option("RUN_A", options->run_a,
                   "Run that has ended, as it should be; the first letters of "
                   "its id do")
      ->required();
  compare->add_option("RUN_B", options->run_b, "Run to compare with it")
      ->required();
  compare->add_option("--attempt-a", options->attempt_a,
                      "Attempt of RUN_A (default: the last one that trained)");
  compare->add_option("--attempt-b", options->attempt_b,
                      "Attempt of RUN_B (default: the last one that trained)");
  compare->footer(
      "Exit codes: 0 no difference, 1 a difference, 11 nothing could be "
      "compared.\n"
      "Example:\n"
      "  traincheckctl compare last-week today");
  compare->callback(
      [=] { *action = [=] { return Compare(*context, *options); }; });
}

}  // namespace traincheck::ctl
