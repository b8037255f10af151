#include "ctl/run/monitoring_environment.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "ctl/text/shell_quote.h"

namespace traincheck::ctl {
namespace {

std::string Prepended(const std::string& library, const std::string& preload) {
  if (preload.empty()) return library;
  // A `run` within a `run` must not name the library twice.
  if (absl::StartsWith(preload + ":", library + ":")) return preload;
  return absl::StrCat(library, ":", preload);
}

}  // namespace

std::vector<Variable> MonitoringVariables(const MonitoringOptions& options,
                                          const std::string& preload) {
  std::vector<Variable> variables;
  if (!options.agent_library.empty()) {
    variables.push_back(
        {"LD_PRELOAD", Prepended(options.agent_library, preload)});
  }
  variables.push_back({"TRAINCHECK_SERVER", options.server});
  // As this program reaches it.
  for (const char* name : {"TRAINCHECK_TLS_CA", "TRAINCHECK_TOKEN_FILE"}) {
    const char* const file = std::getenv(name);
    if (file != nullptr && *file != '\0') variables.push_back({name, file});
  }
  if (!options.run.empty()) {
    variables.push_back({"TRAINCHECK_RUN", options.run});
  }
  if (!options.experiment.empty()) {
    variables.push_back({"TRAINCHECK_EXPERIMENT", options.experiment});
  }
  if (!options.config.empty()) {
    variables.push_back({"TRAINCHECK_CONFIG", options.config});
  }
  // What the file of settings says holds where a variable is absent, not where
  // it is empty.
  // No value removes a variable, an empty one overrides the file.
  std::optional<std::string> none;
  if (!options.config.empty()) none = "";
  // The one asked for; the other one may be inherited from a job script.
  if (options.collect) {
    variables.push_back({"TRAINCHECK_COLLECT", options.full ? "full" : "1"});
    variables.push_back({"TRAINCHECK_CHECK", none});
  } else if (!options.check_set.empty()) {
    variables.push_back({"TRAINCHECK_CHECK", options.check_set});
    variables.push_back({"TRAINCHECK_COLLECT", none});
  } else {
    // Neither is asked for by an option. An inherited TRAINCHECK_COLLECT stays:
    // it is the user's own word.
    variables.push_back({"TRAINCHECK_CHECK", none});
  }
  if (!options.plan.empty()) {
    variables.push_back({"TRAINCHECK_PLAN", options.plan});
  }
  return variables;
}

std::vector<std::string> ChangedEnvironment(
    const char* const* base, const std::vector<Variable>& variables) {
  // A name that is changed appears once: of two entries with one name programs
  // may take either.
  std::vector<std::string> environment;
  for (; *base != nullptr; ++base) {
    const std::string entry = *base;
    const std::string name = entry.substr(0, entry.find('='));
    const bool changed = std::any_of(
        variables.begin(), variables.end(),
        [&](const Variable& variable) { return variable.name == name; });
    if (!changed) environment.push_back(entry);
  }
  for (const Variable& variable : variables) {
    if (variable.value) {
      environment.push_back(absl::StrCat(variable.name, "=", *variable.value));
    }
  }
  return environment;
}

// A shell evaluates these lines, so every value is quoted.
std::string ShellLines(const std::vector<Variable>& variables) {
  std::string lines;
  for (const Variable& variable : variables) {
    if (variable.value) {
      absl::StrAppend(&lines, "export ", variable.name, "=",
                      ShellQuote(*variable.value), "\n");
    } else {
      absl::StrAppend(&lines, "unset ", variable.name, "\n");
    }
  }
  return lines;
}

}  // namespace traincheck::ctl
