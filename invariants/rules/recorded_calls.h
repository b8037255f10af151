// Would a call of a function have been recorded?
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_
#define TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_

#include <string>

#include "invariants/facts/process_facts.h"
#include "invariants/rules/function_match.h"

namespace traincheck {

// Is it a call that is not recorded in a step that was not sampled? True where
// nothing says that it is of the skeleton.
bool IsBeyondSkeleton(const ProcessFacts& facts, const FunctionMatch& event);
// Has the process recorded such calls since then, in the steps that it
// recorded in full? What no plan names may have happened unseen.
bool IsRecorded(const ProcessFacts& facts, const FunctionMatch& event,
                const RecordedSince& since);
// Why it is unknown whether such a call happened.
std::string NotRecordedWords(const ProcessFacts& facts,
                             const FunctionMatch& event);

// Why such calls may have been missed in a window that began then; "": each of
// them was recorded.
std::string WhyMissed(const ProcessFacts& facts, const FunctionMatch& event,
                      const RecordedSince& since, uint64_t gaps);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RECORDED_CALLS_H_
