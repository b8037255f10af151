// The options that `run` and `env` share.
#ifndef TRAINCHECK_CTL_COMMANDS_MONITORING_FLAGS_H_
#define TRAINCHECK_CTL_COMMANDS_MONITORING_FLAGS_H_

#include <filesystem>
#include <string>

#include "CLI/CLI.hpp"
#include "ctl/text/run_id.h"

namespace traincheck::ctl {

// Adds --experiment, --run, --collect, --full, --check, --no-builtin, --plan
// and --config to `command`; Options has experiment, run, collect, full,
// check_set, without_builtin, plan and config, and outlives the parsing.
template <typename Options>
void AddMonitoringFlags(CLI::App* command, Options* options) {
  command->add_option("--experiment", options->experiment,
                      "Name of what is trained (default: the script's path)");
  command
      ->add_option("--run", options->run,
                   "Run id; must not exist yet (default: generated)")
      ->check([](const std::string& id) {
        return std::string(CheckRunId(id).message());
      });
  CLI::Option* collect = command->add_flag("--collect", options->collect,
                                           "A reference run, to learn from");
  command
      ->add_flag("--full", options->full,
                 "Also record every call of a torch function")
      ->needs(collect);
  command
      ->add_option("--check", options->check_set,
                   "Check against this set, too, while it trains, or "
                   "several: A,B")
      ->excludes(collect);
  command->add_flag("--no-builtin", options->without_builtin,
                    "Leave the built-in rules out");
  command
      ->add_option("--plan", options->plan,
                   "Capture plan: which arguments and results are recorded "
                   "(docs/capture-plan.md)")
      ->check(CLI::ExistingFile)
      ->transform([](const std::string& path) {
        // The training may change its directory before it imports torch.
        return std::filesystem::absolute(path).string();
      });
  command
      ->add_option("--config", options->config,
                   "File of settings (docs/configuration.md)")
      ->check(CLI::ExistingFile);
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_COMMANDS_MONITORING_FLAGS_H_
