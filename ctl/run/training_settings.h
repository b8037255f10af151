// The settings that a training started from here would have: this program's
// environment, under it the repository's file, and under that the file of
// settings (docs/configuration.md).
#ifndef TRAINCHECK_CTL_RUN_TRAINING_SETTINGS_H_
#define TRAINCHECK_CTL_RUN_TRAINING_SETTINGS_H_

#include <string>
#include <vector>

#include "ctl/context.h"
#include "ctl/run/repository_file.h"

namespace traincheck::ctl {

// What options of the command line say; empty: nothing.
struct NamedSettings {
  std::string server;
  std::string experiment;
  std::string check_set;
  std::string config;  // the file
  std::string plan;    // its file; only looked at
  bool collects = false;
  bool without_builtin = false;
  // Of the repository's file; check_set leaves them out.
  std::vector<SilencedRule> silenced;
};

// Puts in what the environment says of the file, and what the files say of the
// rest where neither option nor environment does. A reference run is checked
// against no set; any other one against the built-in rules, too, unless an
// option or a setting says no or somebody's own plan says what is recorded. "":
// done; else why the agent would stay off: a wrong setting or repository's
// file, or a plan that is not one.
[[nodiscard]] std::string FillFromSettings(NamedSettings* named);

// What the training would have as this setting, "TRAINCHECK_BUDGET"; `config`
// as in NamedSettings. "": what holds without it.
[[nodiscard]] std::string SettingOfTraining(const std::string& config,
                                            const std::string& variable);

// The selection without them; "" stays "".
std::string Without(const std::vector<SilencedRule>& silenced,
                    const std::string& sets);

// For Options of `run`, `env` or `preflight`, which have these members and
// collect.
template <typename Options>
[[nodiscard]] std::string TakeSettings(const Context& context,
                                       Options* options) {
  NamedSettings named{context.server_named ? context.server : "",
                      options->experiment,
                      options->check_set,
                      options->config,
                      options->plan,
                      options->collect,
                      options->without_builtin,
                      {}};
  const std::string wrong = FillFromSettings(&named);
  options->server = named.server.empty() ? context.server : named.server;
  options->experiment = named.experiment;
  options->check_set = named.check_set;
  options->config = named.config;
  options->silenced = named.silenced;
  return wrong;
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_TRAINING_SETTINGS_H_
