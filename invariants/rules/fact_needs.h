// What must be recorded for a fact to be known.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_FACT_NEEDS_H_
#define TRAINCHECK_INVARIANTS_RULES_FACT_NEEDS_H_

#include "invariants/facts/fact.h"
#include "invariants/rules/capture_needs.h"

namespace traincheck {

void AddNeeds(const Fact& fact, CaptureNeeds* needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_FACT_NEEDS_H_
