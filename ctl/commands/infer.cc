#include <unistd.h>

#include <memory>

#include "ctl/commands/commands.h"
#include "ctl/commands/query.h"
#include "ctl/render/infer_result.h"
#include "ctl/text/progress_line.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string set;
  std::vector<std::string> relations;
};

int Infer(const Context& context, const Options& options) {
  v1::InferRequest request;
  request.mutable_runs()->Add(options.runs.begin(), options.runs.end());
  request.set_set(options.set);
  request.mutable_relations()->Add(options.relations.begin(),
                                   options.relations.end());
  auto ask = [&](Client& client) {
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    return client.Infer(request, [&](const v1::InferProgress& progress) {
      line.Update(progress.stage(), progress.fraction());
    });
  };
  return Query<v1::InferResult>(context, ask,
                                {InferResultText, [](const auto& result) {
                                   return PrettyJson(InferResultJson(result));
                                 }});
}

}  // namespace

void AddInfer(CLI::App* app, const Context* context, Action* action) {
  CLI::App* infer = app->add_subcommand(
      "infer", "Learns a set of invariants from recorded runs and waits");
  auto options = std::make_shared<Options>();
  infer->add_option("--from", options->runs, "Runs: ID[,ID...]")
      ->required()
      ->delimiter(',');
  infer->add_option("--set", options->set, "Name of the set")->required();
  infer
      ->add_option("--relations", options->relations,
                   "Only these relations: NAME[,NAME...]")
      ->delimiter(',');
  infer->callback([=] { *action = [=] { return Infer(*context, *options); }; });
}

}  // namespace traincheck::ctl
