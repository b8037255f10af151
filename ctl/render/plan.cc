#include "ctl/render/plan.h"

#include "absl/strings/str_cat.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

// The plan as an object within the answer and not as a text in it; null if
// there is none.
Json PlanJson(const std::string& text) {
  Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  return json.is_discarded() ? Json() : json;
}

Json VersionJson(const v1::PlanVersion& version) {
  Json json;
  json["version"] = version.version();
  json["from_step"] = version.from_step();
  json["origin"] = version.origin();
  json["made"] = TimeOrNull(version.made_unix_ns());
  return json;
}

Json RankJson(const v1::RankPlan& rank) {
  Json json;
  json["attempt"] = rank.attempt();
  json["rank"] = rank.rank();
  json["version"] = rank.version();
  json["after_step"] = rank.has_after_step() ? Json(rank.after_step()) : Json();
  return json;
}

}  // namespace

Json RunPlanJson(const v1::RunPlan& plan) {
  Json json;
  json["run"] = plan.run();
  json["versions"] = ArrayOf(plan.versions(), VersionJson);
  json["ranks"] = ArrayOf(plan.ranks(), RankJson);
  json["plan"] = PlanJson(plan.json());
  return json;
}

std::string RunPlanText(const v1::RunPlan& plan) {
  // Plans of files and defaults are known to the agents alone.
  if (plan.versions().empty()) {
    return absl::StrCat("run ", OneLine(plan.run()),
                        " was sent no plan: its agents record under the one "
                        "that they began with\n");
  }
  Table versions({{"VERSION", Align::kRight},
                  {"FROM STEP", Align::kRight},
                  {"ORIGIN"},
                  {"MADE"}});
  for (const v1::PlanVersion& version : plan.versions()) {
    versions.AddRow({std::to_string(version.version()),
                     std::to_string(version.from_step()), version.origin(),
                     TimeOrUnknown(version.made_unix_ns())});
  }
  Table ranks({{"RANK", Align::kRight},
               {"ATTEMPT", Align::kRight},
               {"VERSION", Align::kRight},
               {"AFTER STEP", Align::kRight}});
  // Ranks take a version over one by one, each when it comes to the step.
  for (const v1::RankPlan& rank : plan.ranks()) {
    ranks.AddRow({std::to_string(rank.rank()), std::to_string(rank.attempt()),
                  std::to_string(rank.version()),
                  NumberOrUnknown(rank.has_after_step(),
                                  static_cast<int64_t>(rank.after_step()))});
  }
  std::string text = versions.Render() + "\n";
  if (!plan.ranks().empty()) absl::StrAppend(&text, ranks.Render(), "\n");
  return text + PrettyJson(PlanJson(plan.json()));
}

std::string SetPlanText(const v1::SetPlan& plan) {
  return PrettyJson(PlanJson(plan.json()));
}

}  // namespace traincheck::ctl
