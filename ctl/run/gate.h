// Whether a checked run may pass where its exit code decides: a gate must not
// pass on what nobody looked at.
//
// Threads: pure.
#ifndef TRAINCHECK_CTL_RUN_GATE_H_
#define TRAINCHECK_CTL_RUN_GATE_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

struct GateOptions {
  bool fail_on_violation = false;
  // Percent of the invariants that the run gave an occasion, to be decided at
  // least; 0 asks for nothing. Absent: one invariant at least in each process
  // that trains where fail_on_violation is set, else nothing.
  std::optional<double> min_coverage;
  // What fail_on_violation is called in messages.
  const char* asker = "--fail-on-violation";

  bool asked_for() const { return fail_on_violation || min_coverage; }
};

struct GateFindings {
  size_t violations = 0;
  uint32_t decided = 0;
  uint32_t total = 0;  // without those that had no occasion
  // Every window is judged.
  bool finished = false;
  // Processes that train and in which nothing was decided ("rank 3").
  std::vector<std::string> unchecked_processes = {};
};

// Of a check that found so many alerts.
GateFindings FindingsOf(const v1::CheckProgress& check, size_t alerts);

struct GateResult {
  // kExitDone, kExitViolations or kExitTooLittle.
  int code = 0;
  // Of kExitTooLittle: what is missing.
  std::string reason;
};

// Violations count for more than what is missing.
GateResult PassGate(const GateOptions& options, const GateFindings& findings);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RUN_GATE_H_
