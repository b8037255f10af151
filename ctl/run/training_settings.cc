#include "ctl/run/training_settings.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
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
  for (const auto& [name, of_file] : settings.of_file()) {
    if (name == variable && value->empty()) *value = of_file;
  }
}

bool IsReference(const Settings& settings, const NamedSettings& named) {
  const std::string collect = settings.Get("TRAINCHECK_COLLECT");
  return named.collects ||
         (named.check_set.empty() && !collect.empty() && collect != "0");
}

bool IsBuiltIn(const SetRef& set) { return set.name == kBuiltInSet; }

// Texts that name no sets stay as they are: whoever reads them says why.
std::string WithBuiltIn(const std::string& sets) {
  if (sets.empty()) return kBuiltInSet;
  const auto refs = ParseSetRefs(sets);
  const bool has_it =
      refs.ok() && std::any_of(refs->begin(), refs->end(), IsBuiltIn);
  return has_it ? sets : absl::StrCat(kBuiltInSet, ",", sets);
}

std::string WithoutBuiltIn(const std::string& sets) {
  const auto refs = ParseSetRefs(sets);
  if (!refs.ok()) return sets;
  std::vector<std::string> others;
  for (const SetRef& set : *refs) {
    if (!IsBuiltIn(set)) others.push_back(ToText(set));
  }
  return absl::StrJoin(others, ",");
}

std::string SetsToCheck(const Settings& settings, const std::string& plan,
                        const NamedSettings& named) {
  if (IsReference(settings, named)) return "";
  const std::string asked = named.check_set.empty()
                                ? settings.Get("TRAINCHECK_CHECK")
                                : named.check_set;
  if (named.without_builtin || settings.Get("TRAINCHECK_BUILTIN") == "0") {
    return WithoutBuiltIn(asked);
  }
  const bool plan_alone = asked.empty() && !plan.empty();
  return plan_alone ? "" : WithBuiltIn(asked);
}

}  // namespace

std::string SettingOfTraining(const std::string& config,
                              const std::string& variable) {
  Settings settings;
  if (!Load(config, &settings).empty()) return "";
  return settings.Get(variable);
}

std::string FillFromSettings(NamedSettings* named) {
  Settings settings;
  std::string wrong = Load(named->config, &settings);
  if (!wrong.empty()) return wrong;
  const std::string plan =
      named->plan.empty() ? settings.Get("TRAINCHECK_PLAN") : named->plan;
  if (!plan.empty()) {
    std::string wrong_plan = WhatIsWrongWithPlan(plan);
    if (!wrong_plan.empty()) return wrong_plan;
  }
  named->config = settings.Get("TRAINCHECK_CONFIG");
  if (!named->config.empty()) {
    // The training may change its directory before it imports torch.
    std::error_code error;
    const auto path = std::filesystem::absolute(named->config, error);
    if (!error) named->config = path.string();
  }
  Take(settings, "TRAINCHECK_SERVER", &named->server);
  Take(settings, "TRAINCHECK_EXPERIMENT", &named->experiment);
  named->check_set = SetsToCheck(settings, plan, *named);
  return "";
}

}  // namespace traincheck::ctl
