#include "ctl/run/training_settings.h"

#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/run/monitoring_environment.h"
#include "ctl/run/plan_check.h"
#include "invariants/sets/set_ref.h"
#include "proto/settings/settings.h"

namespace traincheck::ctl {
namespace {

// The environment of the training, as far as its settings go.
std::string Load(const std::string& config, Settings* settings) {
  std::vector<Variable> changes;
  if (!config.empty()) changes.push_back({"TRAINCHECK_CONFIG", config});
  const std::vector<std::string> lines = ChangedEnvironment(environ, changes);
  std::vector<const char*> pointers;
  for (const std::string& line : lines) pointers.push_back(line.c_str());
  pointers.push_back(nullptr);
  return settings->Load(pointers.data());
}

void Take(const Settings& settings, const char* variable, std::string* value) {
  // Only what files say: the training inherits the environment in any case.
  for (const auto& [name, of_file] : settings.of_file()) {
    if (name == variable && value->empty()) *value = of_file;
  }
}

bool IsReference(const Settings& settings, const NamedSettings& named) {
  // --check outweighs the variable: an option is the later word.
  const std::string collect = settings.Get("TRAINCHECK_COLLECT");
  return named.collects ||
         (named.check_set.empty() && !collect.empty() && collect != "0");
}

bool IsBuiltIn(const SetRef& set) { return set.name == kBuiltInSet; }

// Texts that name no sets stay as they are: whoever reads them says why.
std::string WithBuiltIn(const std::string& sets) {
  if (sets.empty()) return kBuiltInSet;
  const auto selection = ParseSelection(sets);
  const bool has_it =
      selection.ok() &&
      std::any_of(selection->sets.begin(), selection->sets.end(), IsBuiltIn);
  return has_it ? sets : absl::StrCat(kBuiltInSet, ",", sets);
}

std::string WithoutBuiltIn(const std::string& sets) {
  auto selection = ParseSelection(sets);
  if (!selection.ok()) return sets;
  std::erase_if(selection->sets, IsBuiltIn);
  return selection->sets.empty() ? "" : ToText(*selection);
}

// What the environment says, else the repository's file, else the file of
// settings.
std::string Said(const Settings& settings, const char* variable,
                 const std::string& of_repository) {
  const bool in_environment = getenv(variable) != nullptr;
  return in_environment || of_repository.empty() ? settings.Get(variable)
                                                 : of_repository;
}

std::string BuiltinOf(const RepositoryFile& repository) {
  // In the form of TRAINCHECK_BUILTIN, so that Said can choose between them.
  if (!repository.builtin.has_value()) return "";
  return *repository.builtin ? "1" : "0";
}

// What the run is to be checked against, before the server adds what is
// deployed and takes out what is disabled.
std::string SetsToCheck(const Settings& settings, const std::string& plan,
                        const RepositoryFile& repository,
                        const NamedSettings& named) {
  if (IsReference(settings, named)) return "";
  const std::string asked =
      named.check_set.empty()
          ? Said(settings, "TRAINCHECK_CHECK", repository.check)
          : named.check_set;
  // Sets that a user names by hand are looked through as well: "no" holds for
  // the built-in ones wherever they are named.
  if (named.without_builtin ||
      Said(settings, "TRAINCHECK_BUILTIN", BuiltinOf(repository)) == "0") {
    return WithoutBuiltIn(asked);
  }
  // A plan of the user's own says what is recorded, and may lack what the
  // built-in rules need.
  const bool plan_alone = asked.empty() && !plan.empty();
  return plan_alone ? "" : WithBuiltIn(asked);
}

}  // namespace

std::string Without(const std::vector<SilencedRule>& silenced,
                    const std::string& sets) {
  if (sets.empty()) return "";
  std::string selection = sets;
  for (const SilencedRule& rule : silenced) {
    absl::StrAppend(&selection, ",-", rule.rule);
  }
  return selection;
}

std::string SettingOfTraining(const std::string& config,
                              const std::string& variable) {
  Settings settings;
  // FillFromSettings has reported the mistake by then.
  if (!Load(config, &settings).empty()) return "";
  return settings.Get(variable);
}

// The order is that of the sources: options are in *named already, then come
// the environment, the repository's file and the file of settings. Each fills
// in only what those before it left open.
std::string FillFromSettings(NamedSettings* named) {
  Settings settings;
  std::string wrong = Load(named->config, &settings);
  if (!wrong.empty()) return wrong;
  const std::string plan =
      named->plan.empty() ? settings.Get("TRAINCHECK_PLAN") : named->plan;
  if (!plan.empty()) {
    // Before anything starts: with a wrong plan each process of the training
    // would stay unrecorded.
    std::string wrong_plan = WhatIsWrongWithPlan(plan);
    if (!wrong_plan.empty()) return wrong_plan;
  }
  std::error_code error;
  const absl::StatusOr<RepositoryFile> repository =
      FindRepositoryFile(std::filesystem::current_path(error));
  if (!repository.ok()) return std::string(repository.status().message());
  named->config = settings.Get("TRAINCHECK_CONFIG");
  if (!named->config.empty()) {
    // The training may change its directory before it imports torch.
    const auto path = std::filesystem::absolute(named->config, error);
    if (!error) named->config = path.string();
  }
  Take(settings, "TRAINCHECK_SERVER", &named->server);
  for (const auto& [name, of_file] : settings.of_file()) {
    // What the training connects with, this program does too.
    if (name == "TRAINCHECK_TLS_CA" || name == "TRAINCHECK_TOKEN_FILE") {
      setenv(name.c_str(), of_file.c_str(), /*overwrite=*/0);
    }
  }
  // The training inherits the environment, so a name in it needs no option.
  if (named->experiment.empty() && getenv("TRAINCHECK_EXPERIMENT") == nullptr) {
    named->experiment = repository->experiment;
  }
  Take(settings, "TRAINCHECK_EXPERIMENT", &named->experiment);
  named->check_set = Without(repository->silenced,
                             SetsToCheck(settings, plan, *repository, *named));
  named->silenced = repository->silenced;
  return "";
}

}  // namespace traincheck::ctl
