// What a finding is about besides variables, by names that are equal on all
// ranks and in each run of a program. Incidents are found by them
// (checker/incidents); nobody is shown them.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_SUBJECTS_H_
#define TRAINCHECK_INVARIANTS_RULES_SUBJECTS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "invariants/rules/words.h"

namespace traincheck {

// The process's optimizer of this number, in the order of construction.
inline std::string OptimizerSubject(uint32_t ordinal) {
  return "optimizer " + std::to_string(ordinal);
}

// Of the process groups of these ranks the one of this number.
inline std::string GroupSubject(const std::vector<int32_t>& ranks,
                                uint32_t ordinal) {
  return "process group " + std::to_string(ordinal) + " of " + RankWords(ranks);
}

// The function where it is called from this line.
inline std::string CallSubject(const std::string& function,
                               const std::string& site) {
  return function + " at " + site;
}

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_SUBJECTS_H_
