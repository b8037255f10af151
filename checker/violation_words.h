// What people are told of a violation besides its finding.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_VIOLATION_WORDS_H_
#define TRAINCHECK_CHECKER_VIOLATION_WORDS_H_

#include <string>

#include "checker/checker.h"
#include "invariants/rules/invariant.h"

namespace traincheck {

// What a finding stands against: "; no reference run shows this".
std::string AgainstWords(const Invariant& rule);

// Notes, headline, basis and place: what the rule's author wrote, or what its
// family has. REQUIRES: the rest of the violation is there.
void AddWords(const Invariant& rule, Violation* violation);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_VIOLATION_WORDS_H_
