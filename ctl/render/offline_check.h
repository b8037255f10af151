// TrainCheck's offline verdicts on a trace.
#ifndef TRAINCHECK_CTL_RENDER_OFFLINE_CHECK_H_
#define TRAINCHECK_CTL_RENDER_OFFLINE_CHECK_H_

#include <cstdint>
#include <string>

#include "ctl/render/json.h"
#include "invariants/traincheck/conformance/offline_check.h"

namespace traincheck::ctl {

struct OfflineCheckResult {
  std::string trace;  // as the user named them
  std::string invariants;
  OfflineCheck check;
};

// How many lines have each verdict.
struct LineCounts {
  uint32_t failed = 0;
  uint32_t passed = 0;
  uint32_t not_triggered = 0;
  uint32_t not_checkable = 0;

  void Add(LineVerdict verdict);
};
LineCounts CountLines(const OfflineCheck& check);

// For people: a table of the relations, what failed, and what was not
// checkable.
std::string OfflineCheckText(const OfflineCheckResult& result);
Json OfflineCheckJson(const OfflineCheckResult& result);

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_OFFLINE_CHECK_H_
