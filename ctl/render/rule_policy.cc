#include "ctl/render/rule_policy.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "ctl/render/names.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {

Json DeletedSetJson(const v1::DeleteSetReply& deleted) {
  Json json;
  json["name"] = deleted.name();
  json["versions"] = ArrayOf(deleted.versions());
  return json;
}

// The versions are named, because a name without one deletes all of them.
std::string DeletedSetText(const v1::DeleteSetReply& deleted) {
  return absl::StrCat("deleted set ", OneLine(deleted.name()), ", version",
                      deleted.versions_size() == 1 ? " " : "s ",
                      absl::StrJoin(deleted.versions(), ", "), "\n");
}

Json DisabledRuleJson(const v1::DisabledRule& rule) {
  Json json;
  json["rule"] = rule.rule();
  json["text"] = rule.text();
  json["reason"] = rule.reason();
  json["since"] = TimeOrNull(rule.since_unix_ns());
  return json;
}

std::string DisabledRulesTable(const std::vector<v1::DisabledRule>& rules) {
  Table table({{"RULE"}, {"SINCE"}, {"REASON"}, {"TEXT"}});
  for (const v1::DisabledRule& rule : rules) {
    table.AddRow({rule.rule(), TimeOrUnknown(rule.since_unix_ns()),
                  rule.reason(), rule.text()});
  }
  return table.Render(StdoutColumns());
}

Json DeploymentJson(const v1::Deployment& deployment) {
  Json json;
  json["experiment"] = deployment.experiment();
  json["sets"] = ArrayOf(deployment.sets());
  json["since"] = TimeOrNull(deployment.since_unix_ns());
  return json;
}

std::string DeploymentText(const v1::Deployment& deployment) {
  const std::string experiment = OneLine(deployment.experiment());
  // The answer to `sets withdraw`.
  if (deployment.sets().empty()) {
    return absl::StrCat("nothing is deployed for experiment ", experiment,
                        "\n");
  }
  return absl::StrCat("runs of experiment ", experiment,
                      " that begin from now on are checked against ",
                      OneLine(absl::StrJoin(deployment.sets(), ", ")), "\n");
}

std::string DeploymentsTable(const std::vector<v1::Deployment>& deployments) {
  Table table({{"EXPERIMENT"}, {"SETS"}, {"SINCE"}});
  for (const v1::Deployment& deployment : deployments) {
    table.AddRow({deployment.experiment(),
                  absl::StrJoin(deployment.sets(), ","),
                  TimeOrUnknown(deployment.since_unix_ns())});
  }
  return table.Render(StdoutColumns());
}

}  // namespace traincheck::ctl
