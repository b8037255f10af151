#include <unistd.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "absl/strings/ascii.h"
#include "ctl/commands/commands.h"
#include "ctl/commands/interrupt_note.h"
#include "ctl/commands/query.h"
#include "ctl/render/infer_result.h"
#include "ctl/render/job.h"
#include "ctl/text/progress_line.h"

namespace traincheck::ctl {
namespace {

// What is absent is left to the daemon (MakeOptions).
struct Options {
  std::vector<std::string> runs;
  std::string set;
  std::vector<std::string> relations;
  std::vector<std::string> include_functions;
  std::vector<std::string> exclude_functions;
  std::vector<std::string> include_variables;
  std::vector<std::string> exclude_variables;
  std::optional<uint32_t> min_programs;
  std::optional<double> max_chance;
  std::optional<uint32_t> max_invariants;
  std::optional<uint32_t> max_hypotheses;
  bool detach = false;
};

using Texts = google::protobuf::RepeatedPtrField<std::string>;

void Fill(const std::vector<std::string>& from, Texts* to) {
  to->Add(from.begin(), from.end());
}

// Only what the user gave: the defaults are the daemon's, and may change with
// it.
v1::InferOptions MakeOptions(const Options& options) {
  v1::InferOptions made;
  Fill(options.include_functions, made.mutable_include_functions());
  Fill(options.exclude_functions, made.mutable_exclude_functions());
  Fill(options.include_variables, made.mutable_include_variables());
  Fill(options.exclude_variables, made.mutable_exclude_variables());
  if (options.min_programs) made.set_min_programs(*options.min_programs);
  if (options.max_chance) made.set_max_chance(*options.max_chance);
  if (options.max_invariants) made.set_max_invariants(*options.max_invariants);
  if (options.max_hypotheses) made.set_max_hypotheses(*options.max_hypotheses);
  return made;
}

v1::InferRequest MakeRequest(const Options& options) {
  v1::InferRequest request;
  Fill(options.runs, request.mutable_runs());
  request.set_set(options.set);
  Fill(options.relations, request.mutable_relations());
  *request.mutable_options() = MakeOptions(options);
  return request;
}

// The server names fields of the request; the user wrote options.
absl::Status InOptionNames(const absl::Status& status) {
  std::string message(status.message());
  // A message may name several fields, such as "InferRequest.runs" and
  // "InferRequest.options.max_chance".
  constexpr char kRequest[] = "InferRequest.";
  for (size_t at = 0; (at = message.find(kRequest, at)) != std::string::npos;) {
    size_t end = at + sizeof(kRequest) - 1;
    constexpr char kOptions[] = "options.";
    if (message.compare(end, sizeof(kOptions) - 1, kOptions) == 0) {
      end += sizeof(kOptions) - 1;
    }
    const size_t field = end;
    while (end < message.size() &&
           (absl::ascii_islower(message[end]) || message[end] == '_')) {
      ++end;
    }
    std::string name = message.substr(field, end - field);
    // The only option that is not called like its field.
    if (name == "runs") name = "from";
    std::replace(name.begin(), name.end(), '_', '-');
    message.replace(at, end - at, "--" + name);
    at += name.size();
  }
  return absl::Status(status.code(), message);
}

template <typename Answer>
absl::StatusOr<Answer> InOptionNames(absl::StatusOr<Answer> answer) {
  if (answer.ok()) return answer;
  return InOptionNames(answer.status());
}

// Starts the job and leaves: the daemon goes on without a client.
int Detach(const Context& context, const Options& options) {
  return Query<v1::Job>(
      context,
      [&](Client& client) {
        return InOptionNames(client.StartInference(MakeRequest(options)));
      },
      {DetachedJobText,
       [](const v1::Job& job) { return PrettyJson(DetachedJobJson(job)); }});
}

// The job is the daemon's in this case as well: an interrupt ends the wait and
// not the job.
int InferAndWait(const Context& context, const Options& options) {
  // Its thread waits as long as there is a process. Made before the client, so
  // that its threads inherit the mask.
  auto* const note = new InterruptNote;
  auto ask = [&](Client& client) {
    ProgressLine line(&std::cerr, isatty(STDERR_FILENO) == 1);
    const auto show = [&](const v1::InferProgress& progress) {
      // From the first message on an interrupt can say how the job is followed
      // and ended.
      note->SetJob(progress.job());
      line.Update(progress.stage(), progress.fraction());
    };
    return InOptionNames(client.Infer(MakeRequest(options), show));
  };
  return Query<v1::InferResult>(context, ask,
                                {InferResultText, [](const auto& result) {
                                   return PrettyJson(InferResultJson(result));
                                 }});
}

// The daemon matches these patterns, against names as rules have them.
void AddPatterns(CLI::App* infer, Options* options) {
  const auto add = [infer](const char* name, std::vector<std::string>* patterns,
                           const char* what) {
    infer->add_option(name, *patterns, what)->delimiter(',');
  };
  add("--include-functions", &options->include_functions,
      "Only rules on these functions: PATTERN[,PATTERN...] (*, ?, [...])");
  add("--exclude-functions", &options->exclude_functions,
      "No rules on these functions");
  add("--include-variables", &options->include_variables,
      "Only rules on these variables");
  add("--exclude-variables", &options->exclude_variables,
      "No rules on these variables");
}

// The defaults in these texts are the daemon's; none of them is sent.
void AddThresholds(CLI::App* infer, Options* options) {
  infer->add_option("--min-programs", options->min_programs,
                    "Minimum number of different programs that support a "
                    "general rule (default 2)");
  infer->add_option("--max-chance", options->max_chance,
                    "Largest probability that a rule held by chance (default "
                    "0.01)");
  infer->add_option("--max-invariants", options->max_invariants,
                    "Keep at most N rules, best first (default 20000)");
  infer->add_option(
      "--max-hypotheses", options->max_hypotheses,
      "Consider at most N hypotheses per relation (default 100000)");
}

}  // namespace

void AddInfer(CLI::App* infer, const Context* context, Action* action) {
  auto options = std::make_shared<Options>();
  infer->add_option("--from", options->runs, "Runs: ID[,ID...]")
      ->required()
      ->delimiter(',');
  infer->add_option("--set", options->set, "Name of the set")->required();
  infer
      ->add_option("--relations", options->relations,
                   "Only these relations: NAME[,NAME...]")
      ->delimiter(',');
  AddPatterns(infer, options.get());
  AddThresholds(infer, options.get());
  infer->add_flag("--detach", options->detach,
                  "Do not wait: print the job and leave");
  infer->footer(
      "Example:\n"
      "  traincheckctl infer --from good-1,good-2 --set my-rules");
  infer->callback([=] {
    *action = [=] {
      return options->detach ? Detach(*context, *options)
                             : InferAndWait(*context, *options);
    };
  });
}

}  // namespace traincheck::ctl
