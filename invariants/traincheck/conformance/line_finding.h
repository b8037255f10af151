// What TrainCheck's offline checker says of one line, and of what.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_FINDING_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_FINDING_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/traincheck/conformance/trace_table.h"

namespace traincheck {

enum class LineVerdict { kFailed, kPassed, kNotTriggered, kNotCheckable };

struct LineFinding {
  LineVerdict verdict = LineVerdict::kNotTriggered;
  // kFailed: what is wrong, and the rows that TrainCheck reports for it.
  std::string why;
  std::vector<const TableRow*> rows;
};

inline LineFinding LineFails(std::string why,
                             std::vector<const TableRow*> rows) {
  return {LineVerdict::kFailed, std::move(why), std::move(rows)};
}

// `triggered`: its precondition held somewhere.
inline LineFinding LineHolds(bool triggered) {
  LineFinding finding;
  finding.verdict =
      triggered ? LineVerdict::kPassed : LineVerdict::kNotTriggered;
  return finding;
}

// FailedPrecondition: the original ends with an error there, and says which.
using LineResult = absl::StatusOr<LineFinding>;

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_LINE_FINDING_H_
