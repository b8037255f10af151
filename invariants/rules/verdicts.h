// The frame of a verdict on a window of one process.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_VERDICTS_H_
#define TRAINCHECK_INVARIANTS_RULES_VERDICTS_H_

#include <cstdint>
#include <string>

#include "invariants/rules/relation.h"

namespace traincheck {

// A pass of rule number `rule` by this process now. `object` tells windows of
// different objects apart.
Verdict NewVerdict(const ProcessFacts& facts, size_t rule, uint32_t object);

// Names the window by its step.
std::string StepLabel(const ProcessFacts& facts, const Verdict& verdict);

// Of a call that says more than those before it, or less.
void PutSiteFirst(const ProcessFacts& facts, uint32_t site, Finding* finding);
void AddSite(const ProcessFacts& facts, uint32_t site, Finding* finding);

// The call is the window: its function, its line and the step are told.
void MarkViolated(const ProcessFacts& facts, const Call& call,
                  Verdict* verdict);

void MarkUnknown(const std::string& reason, Verdict* verdict);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_VERDICTS_H_
