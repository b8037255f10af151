#include "ctl/render/check_result.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/render/incident.h"
#include "ctl/render/run.h"
#include "ctl/render/violation.h"
#include "ctl/text/table.h"

namespace traincheck::ctl {
namespace {

const char* VerdictName(v1::Verdict verdict) {
  switch (verdict) {
    case v1::VERDICT_PASS:
      return "pass";
    case v1::VERDICT_PARTLY:
      return "partly";
    case v1::VERDICT_VIOLATED:
      return "violated";
    case v1::VERDICT_NO_OCCASION:
      return "no_occasion";
    default:
      // Also for a verdict that only a newer daemon has.
      return "unknown";
  }
}

// Of its windows, those that were decided; null: it had none.
Json ShareJson(const v1::InvariantVerdict& verdict) {
  const uint64_t all = verdict.decided_windows() + verdict.unknown_windows();
  if (all == 0) return Json();
  return static_cast<double>(verdict.decided_windows()) /
         static_cast<double>(all);
}

Json VerdictJson(const v1::InvariantVerdict& verdict) {
  Json json;
  json["invariant_id"] = verdict.invariant_id();
  json["relation"] = verdict.relation();
  json["text"] = verdict.text();
  json["verdict"] = VerdictName(verdict.verdict());
  json["reason"] = TextOrNull(verdict.reason());
  json["share"] = ShareJson(verdict);
  return json;
}

// Several sets have their versions in the name.
// As the daemon resolved the names that the user gave.
std::string SetText(const v1::CheckResult& result) {
  if (result.version() == 0) return OneLine(result.set());
  return absl::StrCat(OneLine(result.set()), " version ", result.version());
}

}  // namespace

Json CheckResultJson(const v1::CheckResult& result) {
  const std::vector<v1::Violation> violations(result.violations().begin(),
                                              result.violations().end());
  Json json;
  json["run"] = result.run();
  json["set"] = result.set();
  // Several sets have no version in common.
  json["version"] = result.version() == 0 ? Json() : Json(result.version());
  json["verdicts"] = ArrayOf(result.verdicts(), VerdictJson);
  json["coverage"] = CheckJson(result.coverage());
  json["violations"] = ArrayOf(violations, ViolationDetailJson);
  json["incidents"] = ArrayOf(IncidentsOf(violations), IncidentJson);
  return json;
}

std::string CheckResultText(const v1::CheckResult& result) {
  const v1::CheckProgress& check = result.coverage();
  // Said first: "0 violated" alone would read like a pass.
  const bool nothing = check.decided() == 0 && result.violations().empty();
  std::string text = absl::StrCat(
      nothing ? absl::StrCat("NOTHING CHECKED: none of ", check.total(),
                             " invariants was decided\n")
              : "",
      "run          ", OneLine(result.run()), "\nset          ",
      SetText(result), "\ncheck        ", CheckText(check), "\n");
  if (result.violations().empty()) return text;
  return text + "\n" +
         ViolationsTable(
             {result.violations().begin(), result.violations().end()});
}

}  // namespace traincheck::ctl
