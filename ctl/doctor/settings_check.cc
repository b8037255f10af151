#include "ctl/doctor/settings_check.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/run/plan_check.h"
#include "proto/settings/settings.h"

namespace traincheck::ctl {
namespace {

constexpr char kCheck[] = "settings";

// Who says it: the environment, or a file.
std::string SourceOf(const Settings& settings, const std::string& variable) {
  const std::string file = settings.FileOf(variable);
  return file.empty() ? "the environment" : file;
}

}  // namespace

Finding CheckSettings(const char* const* environment) {
  Settings settings;
  // One mistake is enough to keep the agent off, so the first one is all that
  // is shown.
  const std::string wrong = settings.Load(environment);
  if (!wrong.empty()) {
    return {kCheck, Health::kFail, wrong,
            "mend or unset it (docs/configuration.md): the agent stays off"};
  }
  if (settings.Get("TRAINCHECK_DISABLE") == "1") {
    return {kCheck, Health::kFail,
            absl::StrCat("TRAINCHECK_DISABLE is 1 in ",
                         SourceOf(settings, "TRAINCHECK_DISABLE"),
                         ": the agent does nothing"),
            "take it out, or set it to 0"};
  }
  // A process that finds a wrong plan stays unrecorded.
  const std::string plan = settings.Get("TRAINCHECK_PLAN");
  const std::string wrong_plan = plan.empty() ? "" : WhatIsWrongWithPlan(plan);
  if (!wrong_plan.empty()) {
    return {kCheck, Health::kFail, wrong_plan,
            absl::StrCat("mend it, or take TRAINCHECK_PLAN out of ",
                         SourceOf(settings, "TRAINCHECK_PLAN"),
                         ": the agent stays off")};
  }
  // With the files, because users often do not know that there is one for the
  // whole site.
  return {kCheck, Health::kOk,
          settings.files().empty()
              ? "of the environment"
              : "with " + absl::StrJoin(settings.files(), " and "),
          ""};
}

}  // namespace traincheck::ctl
