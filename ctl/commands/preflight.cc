#include "ctl/preflight/preflight.h"

#include <map>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "ctl/commands/commands.h"
#include "ctl/exit_codes.h"
#include "ctl/report.h"
#include "ctl/run/training_settings.h"

namespace traincheck::ctl {
namespace {

constexpr uint64_t kMaxSteps = 999'999'999;

const std::map<std::string, ReportFormat>& Formats() {
  static const auto* const formats =
      new std::map<std::string, ReportFormat>{{"text", ReportFormat::kText},
                                              {"json", ReportFormat::kJson},
                                              {"junit", ReportFormat::kJUnit},
                                              {"sarif", ReportFormat::kSarif}};
  return *formats;
}

int Preflight(const Context& context, PreflightOptions options) {
  // "--" with nothing behind it. Words without the dashes were refused before
  // (WhatIsWrongWithCommand).
  if (context.command.empty()) {
    Complain("preflight: the training's command line goes after \"--\"");
    return kExitUsage;
  }
  TrainingRunOptions& training = options.training;
  if (const std::string wrong = TakeSettings(context, &training);
      !wrong.empty()) {
    Complain(absl::StrCat("preflight: the training was not started: ", wrong));
    return kExitUsage;
  }
  // A server counts only if it was typed here: otherwise a preflight has a
  // daemon of its own.
  training.server = context.server_typed ? context.server : "";
  training.command = context.command;
  return RunPreflight(std::move(options));
}

}  // namespace

void AddPreflight(CLI::App* preflight, const Context* context, Action* action) {
  auto options = std::make_shared<PreflightOptions>();
  preflight
      ->add_option("--steps", options->steps,
                   "Steps after which each process of the training ends")
      ->capture_default_str()
      ->check(CLI::Range(uint64_t{1}, kMaxSteps));
  preflight->add_option("--experiment", options->training.experiment,
                        "Name of what is trained (default: the script's path)");
  preflight->add_flag("--keep-going", options->keep_going,
                      "Let the training run to its own end");
  preflight->add_flag("--probe", options->probe,
                      "Compare backwards that are written by hand "
                      "(torch.autograd.Function) with difference quotients");
  preflight
      ->add_option("--min-coverage", options->min_coverage,
                   "Exit with 11 unless so many PERCENT of the rules that "
                   "apply are decided (default: one rule); 0: do not ask")
      ->check(CLI::Range(0.0, 100.0));
  preflight
      ->add_option_function<std::string>(
          "--format",
          [options](const std::string& name) {
            options->format = Formats().at(name);
          },
          "text, json, junit or sarif")
      ->check(CLI::IsMember({"text", "json", "junit", "sarif"}));
  preflight->footer(
      "Needs no daemon: it starts one for this training alone, unless --server "
      "names one.\n"
      "Example:\n"
      "  traincheckctl preflight -- torchrun --nproc-per-node 2 train.py");
  preflight->callback([=] {
    // -o json, which all commands have, holds unless --format names another
    // format.
    PreflightOptions asked = *options;
    if (context->json() && asked.format == ReportFormat::kText) {
      asked.format = ReportFormat::kJson;
    }
    *action = [=] { return Preflight(*context, asked); };
  });
}

}  // namespace traincheck::ctl
