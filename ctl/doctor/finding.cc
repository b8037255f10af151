#include "ctl/doctor/finding.h"

#include "absl/strings/str_cat.h"
#include "ctl/render/json.h"
#include "ctl/text/table.h"
#include "ctl/text/terminal.h"

namespace traincheck::ctl {
namespace {

// Words that scripts may look for, in the table and in JSON.
std::string HealthName(Health health) {
  switch (health) {
    case Health::kOk:
      return "ok";
    case Health::kWarn:
      return "warn";
    case Health::kFail:
      break;
  }
  return "fail";
}

Json FindingJson(const Finding& finding) {
  Json json;
  json["check"] = finding.check;
  json["state"] = HealthName(finding.health);
  json["text"] = finding.text;
  json["advice"] = TextOrNull(finding.advice);
  return json;
}

}  // namespace

std::string FindingsText(const std::vector<Finding>& findings) {
  // In the order in which the checks were made.
  Table table({{"CHECK"}, {"STATE"}, {"FOUND"}});
  for (const Finding& finding : findings) {
    table.AddRow({finding.check, HealthName(finding.health), finding.text});
    if (!finding.advice.empty()) {
      // A row of its own, so that the advice is folded in the last column like
      // the text above it.
      table.AddRow({"", "", absl::StrCat("-> ", finding.advice)});
    }
  }
  return table.Render(StdoutColumns());
}

std::string FindingsJson(const std::vector<Finding>& findings) {
  return PrettyJson(ArrayOf(findings, FindingJson));
}

}  // namespace traincheck::ctl
