#include "ctl/render/confidence.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ctl/render/names.h"
#include "ctl/render/run.h"

namespace traincheck::ctl {
namespace {

// The daemon decides which runs count as healthy; the run of the violation is
// not among them.
std::string RunsText(const v1::RuleRecord& record) {
  if (record.decided_runs() == 0) {
    return "no other healthy run has decided this rule";
  }
  return absl::StrFormat("%s decided this rule, %d of them violated it",
                         Counted(record.decided_runs(), "other healthy run"),
                         record.violated_runs());
}

std::string MarksText(const v1::RuleRecord& record) {
  return absl::StrCat("people marked ", record.confirmed(),
                      " of its violations in other runs as confirmed and ",
                      record.false_alarms(), " as a false alarm");
}

std::string CoverageText(const v1::CheckProgress& check) {
  // Not 0: the callers ask HasCoverage first.
  const uint32_t total = RulesWithOccasion(check);
  return absl::StrFormat("this run decided %d of %s (%.0f%%)", check.decided(),
                         Counted(total, "rule"),
                         100.0 * check.decided() / total);
}

// All rules may be without occasion, of which no share can be said.
// False also where the run has no check that the server still knows.
bool HasCoverage(const Confidence& confidence) {
  return confidence.check && RulesWithOccasion(*confidence.check) > 0;
}

}  // namespace

std::string ConfidenceText(const Confidence& confidence) {
  std::vector<std::string> parts;
  if (confidence.record) {
    parts.push_back(RunsText(*confidence.record));
    if (confidence.record->confirmed() + confidence.record->false_alarms() >
        0) {
      parts.push_back(MarksText(*confidence.record));
    }
  }
  if (HasCoverage(confidence)) {
    parts.push_back(CoverageText(*confidence.check));
  }
  if (parts.empty()) return "";
  return absl::StrCat("    how sure: ", absl::StrJoin(parts, "; "), "\n");
}

void AddConfidence(const Confidence& confidence, Json* json) {
  // Null as long as nothing is put in.
  Json record, coverage;
  if (confidence.record) {
    record = {{"decided_runs", confidence.record->decided_runs()},
              {"violated_runs", confidence.record->violated_runs()},
              {"false_alarms", confidence.record->false_alarms()},
              {"confirmed", confidence.record->confirmed()}};
  }
  if (HasCoverage(confidence)) {
    coverage = {{"decided", confidence.check->decided()},
                {"total", RulesWithOccasion(*confidence.check)}};
  }
  (*json)["rule_record"] = std::move(record);
  (*json)["coverage"] = std::move(coverage);
}

}  // namespace traincheck::ctl
