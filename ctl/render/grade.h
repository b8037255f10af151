// How much weight a rule has: "alert", something is wrong; "advice", something
// is unusual and worth a look. What is silenced is neither for anybody.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CTL_RENDER_GRADE_H_
#define TRAINCHECK_CTL_RENDER_GRADE_H_

#include <algorithm>
#include <cstddef>
#include <vector>

#include "proto/traincheck/v1/control.pb.h"

namespace traincheck::ctl {

inline constexpr char kAlert[] = "alert";
inline constexpr char kAdvice[] = "advice";

inline bool IsAdvice(const v1::Violation& violation) {
  return violation.grade() == kAdvice;
}

inline const char* GradeOf(const v1::Violation& violation) {
  return IsAdvice(violation) ? kAdvice : kAlert;
}

// Somebody does not want to be alerted of it.
inline bool IsSilenced(const v1::Violation& violation) {
  return !violation.silenced_by().empty();
}

template <typename Violations>
size_t CountAlerts(const Violations& violations) {
  return std::count_if(violations.begin(), violations.end(),
                       [](const v1::Violation& violation) {
                         return !IsAdvice(violation) && !IsSilenced(violation);
                       });
}

}  // namespace traincheck::ctl

#endif  // TRAINCHECK_CTL_RENDER_GRADE_H_
