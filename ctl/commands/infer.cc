#include <unistd.h>

#include <memory>

#include "ctl/commands/commands.h"
#include "ctl/commands/interrupt_note.h"
#include "ctl/commands/query.h"
#include "ctl/render/infer_result.h"
#include "ctl/render/job.h"
#include "ctl/text/progress_line.h"

namespace traincheck::ctl {
namespace {

struct Options {
  std::vector<std::string> runs;
  std::string set;
  std::vector<std::string> relations;
  bool detach = false;
};

v1::InferRequest MakeRequest(const Options& options) {
  v1::InferRequest request;
  request.mutable_runs()->Add(options.runs.begin(), options.runs.end());
  request.set_set(options.set);
  request.mutable_relations()->Add(options.relations.begin(),
                                   options.relations.end());
  return request;
}

int Detach(const Context& context, const Options& options) {
  return Query<v1::Job>(context,
                        [&](Client& client) {
                          return client.StartInference(MakeRequest(options));
                        },
                        {DetachedJobText, [](const v1::Job& job) {
                           return PrettyJson(DetachedJobJson(job));
                         }});
}

int InferAndWait(const Context& context, const Options& options) {
  // Its thread waits as long as there is a process.
  auto* const note = new InterruptNote;
  auto ask = [&](Client& client) {
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    const auto show = [&](const v1::InferProgress& progress) {
      note->SetJob(progress.job());
      line.Update(progress.stage(), progress.fraction());
    };
    return client.Infer(MakeRequest(options), show);
  };
  return Query<v1::InferResult>(context, ask,
                                {InferResultText, [](const auto& result) {
                                   return PrettyJson(InferResultJson(result));
                                 }});
}

}  // namespace

void AddInfer(CLI::App* app, const Context* context, Action* action) {
  CLI::App* infer = app->add_subcommand(
      "infer", "Learns a set of invariants from recorded runs");
  auto options = std::make_shared<Options>();
  infer->add_option("--from", options->runs, "Runs: ID[,ID...]")
      ->required()
      ->delimiter(',');
  infer->add_option("--set", options->set, "Name of the set")->required();
  infer
      ->add_option("--relations", options->relations,
                   "Only these relations: NAME[,NAME...]")
      ->delimiter(',');
  infer->add_flag("--detach", options->detach,
                  "Do not wait: print the job and leave");
  infer->callback([=] {
    *action = [=] {
      return options->detach ? Detach(*context, *options)
                             : InferAndWait(*context, *options);
    };
  });
}

}  // namespace traincheck::ctl
