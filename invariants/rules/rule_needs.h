// What must be recorded for a rule to be decided, its precondition included;
// and whether a process that never gave it an occasion recorded all that.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_RULE_NEEDS_H_
#define TRAINCHECK_INVARIANTS_RULES_RULE_NEEDS_H_

#include <string>

#include "invariants/rules/capture_needs.h"
#include "invariants/rules/precondition.h"
#include "invariants/rules/process_brief.h"
#include "invariants/rules/rule.h"

namespace traincheck {

void AddNeeds(const Rule& rule, const Precondition& precondition,
              CaptureNeeds* needs);

// Why what a rule with these needs is about may have happened unseen in the
// process; "": it did not happen, in the steps that were recorded in full.
std::string WhyUnseen(const ProcessBrief& process, const CaptureNeeds& needs);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RULE_NEEDS_H_
