// `traincheckctl preflight`: runs a training for a few steps under the built-in
// rules, as a rule with a daemon of its own, and reports what they say.
#ifndef TRAINCHECK_CTL_PREFLIGHT_PREFLIGHT_H_
#define TRAINCHECK_CTL_PREFLIGHT_PREFLIGHT_H_

#include <cstdint>
#include <optional>
#include <string>

#include "ctl/run/monitored_training.h"

namespace traincheck::ctl {

enum class ReportFormat { kText, kJson, kJUnit, kSarif };

struct PreflightOptions {
  TrainingRunOptions training;  // an empty server: a daemon of its own
  uint64_t steps = 20;
  bool keep_going = false;  // to the training's own end
  bool probe = false;       // are hand-made backwards compared?
  // Percent of the rules that apply; absent: one rule at least.
  std::optional<double> min_coverage;
  ReportFormat format = ReportFormat::kText;
};

// Prints the report on stdout, all else on stderr, and returns the exit code of
// this program. REQUIRES: called from the main thread while there is no other.
int RunPreflight(PreflightOptions options);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_PREFLIGHT_PREFLIGHT_H_
