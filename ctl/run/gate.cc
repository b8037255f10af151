#include "ctl/run/gate.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "ctl/exit_codes.h"
#include "ctl/render/run.h"

namespace traincheck::ctl {
namespace {

double Percent(const GateFindings& findings) {
  // Where no rule applies nothing was checked: a gate that asks for a share
  // must not pass for that.
  if (findings.total == 0) return 0;
  return 100.0 * findings.decided / findings.total;
}

bool AsksForCoverage(const GateOptions& options) {
  // Without a percentage --fail-on-violation asks for something decided, at
  // least one rule (Missing).
  if (options.min_coverage) return *options.min_coverage > 0;
  return options.fail_on_violation;
}

std::string Missing(const GateOptions& options, const GateFindings& findings) {
  const std::string decided =
      absl::StrCat(findings.decided, " of ", findings.total, " rules decided");
  // A run in which nothing was decided has no violations either, and must not
  // pass for that. With a percentage the user has said what is enough.
  if (!options.min_coverage && findings.decided == 0) {
    return absl::StrCat(decided, ", and ", options.asker,
                        " asks for one at least");
  }
  if (!options.min_coverage && !findings.unchecked_processes.empty()) {
    return absl::StrCat(decided, ", but none in ",
                        absl::StrJoin(findings.unchecked_processes, ", "),
                        ", and ", options.asker,
                        " asks for one in each process that trains");
  }
  if (options.min_coverage && Percent(findings) < *options.min_coverage) {
    return absl::StrFormat("%s (%.0f%%), and --min-coverage asks for %g%%",
                           decided, Percent(findings), *options.min_coverage);
  }
  // Asked last: enough was decided, but what is not judged yet may hold a
  // violation.
  if (findings.finished) return "";
  return absl::StrCat(decided, ", and the check has not finished: give it ",
                      "more time by --drain-timeout");
}

}  // namespace

// `alerts` and not check.violated(): what is silenced, and advice, must not
// fail a job.
GateFindings FindingsOf(const v1::CheckProgress& check, size_t alerts) {
  return {
      alerts,
      check.decided(),
      RulesWithOccasion(check),
      check.finished(),
      {check.unchecked_processes().begin(), check.unchecked_processes().end()}};
}

GateResult PassGate(const GateOptions& options, const GateFindings& findings) {
  if (options.fail_on_violation && findings.violations > 0) {
    return {kExitViolations, ""};
  }
  if (!AsksForCoverage(options)) return {kExitDone, ""};
  std::string missing = Missing(options, findings);
  if (missing.empty()) return {kExitDone, ""};
  return {kExitTooLittle, "too little was checked: " + missing};
}

}  // namespace traincheck::ctl
