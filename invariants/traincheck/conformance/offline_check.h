// TrainCheck's offline verdicts on a trace, line by line of an invariant file:
// what `check --compat traincheck` gives.
//
// This follows TrainCheck (commit e478ec6, pandas, precondition first,
// signature-free) where a rule of this project's own would decide otherwise: it
// shares nothing with the relations and the checker, and nothing there may
// depend on it. "Semantics, N" in the comments of this folder is section N of
// the project's description of TrainCheck's semantics; docs/traincheck-files.md
// has what users need of it.
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_OFFLINE_CHECK_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_OFFLINE_CHECK_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/line_finding.h"
#include "invariants/traincheck/invariant_file.h"

namespace traincheck {

// A line of the trace.
struct TracePlace {
  std::string file;
  uint64_t line = 0;  // from 1
  int64_t pid = 0;
  int64_t thread = 0;
  int64_t time = 0;  // nanoseconds of the trace's clock
  std::string step;  // meta_vars.step; "": it has none
  std::string what;  // the function or the variable
};

struct JudgedLine {
  uint64_t line = 0;  // of the invariant file, from 1
  std::string relation;
  std::string text;  // made of the content
  LineVerdict verdict = LineVerdict::kNotTriggered;
  // kFailed: what is wrong. kNotCheckable: why TrainCheck stops there.
  std::string reason;
  std::vector<TracePlace>
      where;  // kFailed: the records that TrainCheck reports
};

struct OfflineCheck {
  uint64_t files = 0;
  uint64_t trace_lines = 0;
  // Why TrainCheck refuses the whole trace: no line is checkable. "": it does
  // not.
  std::string refused;
  std::vector<JudgedLine>
      lines;  // in the order of the file, without blank ones
};

// `rules`: of an invariant file, in its order. NotFound: no trace in the
// folder. InvalidArgument names file and line of what is malformed in it.
[[nodiscard]] absl::StatusOr<OfflineCheck> CheckOfflineUntrusted(
    const std::string& folder, const std::vector<RuleLine>& rules);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_OFFLINE_CHECK_H_
