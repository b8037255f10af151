#include "ctl/commands/compat_check.h"

#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "ctl/exit_codes.h"
#include "ctl/render/offline_check.h"
#include "ctl/report.h"
#include "ctl/text/input_file.h"
#include "invariants/traincheck/conformance/offline_check.h"
#include "invariants/traincheck/invariant_file.h"

namespace traincheck::ctl {
namespace {

// Every failure here is one of the files that the user named.
int Refuse(const std::string& message) {
  Complain(message);
  return kExitUsage;
}

// Lines that nothing in the trace gave an occasion do not count.
GateFindings FindingsOf(const LineCounts& counts) {
  GateFindings findings;
  findings.violations = counts.failed;
  findings.decided = counts.failed + counts.passed;
  findings.total = findings.decided + counts.not_checkable;
  // Nothing goes on that could judge more.
  findings.finished = true;
  return findings;
}

}  // namespace

int CompatCheck(const Context& context, const CompatCheckOptions& options,
                const GateOptions& gate) {
  // The invariants before the trace: a mistake in them shows without reading a
  // large folder.
  const absl::StatusOr<std::string> text = ReadInputFile(options.invariants);
  if (!text.ok()) return Refuse(std::string(text.status().message()));
  const absl::StatusOr<std::vector<RuleLine>> rules =
      RuleLinesFromFileUntrusted(*text);
  if (!rules.ok()) {
    return Refuse(
        absl::StrCat(options.invariants, ": ", rules.status().message()));
  }
  absl::StatusOr<OfflineCheck> check =
      CheckOfflineUntrusted(options.trace, *rules);
  if (!check.ok()) return Refuse(std::string(check.status().message()));
  const OfflineCheckResult result = {options.trace, options.invariants,
                                     *std::move(check)};
  std::cout << (context.json() ? PrettyJson(OfflineCheckJson(result))
                               : OfflineCheckText(result))
            << std::flush;
  const GateResult passed =
      PassGate(gate, FindingsOf(CountLines(result.check)));
  if (!passed.reason.empty()) Complain(passed.reason);
  return passed.code;
}

}  // namespace traincheck::ctl
