// What the parts of incidents have in common: when they begin and end, and what
// their variables belong to.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_INCIDENTS_PARTS_H_
#define TRAINCHECK_CHECKER_INCIDENTS_PARTS_H_

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "checker/incidents/incidents.h"

namespace traincheck {

// Next to step 0, so that what begins before the first step joins what begins
// in it.
inline constexpr int64_t kBeforeSteps = -1;
// Of a violation that names none.
inline constexpr int32_t kNoRank = -1;

inline int64_t Begin(const IncidentPart& part) {
  return part.first_step.value_or(kBeforeSteps);
}

inline int64_t End(const IncidentPart& part) {
  return std::max(Begin(part), part.last_step.value_or(kBeforeSteps));
}

// Does the earlier one last when the later one begins? One step more, because
// what a step breaks may show as the next one begins.
inline bool Lasts(const IncidentPart& earlier, const IncidentPart& later) {
  return Begin(later) <= End(earlier) + 1;
}

// Of an optimizer's state ("weight/exp_avg") that of its parameter.
inline std::string_view OwnerOf(std::string_view variable) {
  return variable.substr(0, variable.find('/'));
}

template <typename Use>
void ForRanks(const IncidentPart& part, const Use& use) {
  if (part.ranks.empty()) use(kNoRank);
  for (const int32_t rank : part.ranks) use(rank);
}

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_INCIDENTS_PARTS_H_
