// Adds to a finding the call that has brought it about, before the one at which
// it showed.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_BLAME_H_
#define TRAINCHECK_INVARIANTS_RULES_BLAME_H_

#include <cstdint>

#include "invariants/facts/fact.h"
#include "invariants/rules/relation.h"

namespace traincheck {

// Of a rule on the fact, as the fact says whom to blame.
void AddBlame(const Fact& fact, const FactSubject& subject, Finding* finding);

// The optimizer's construction, for what it was given.
void BlameConstruction(const ProcessFacts& facts, uint32_t optimizer,
                       Finding* finding);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_BLAME_H_
