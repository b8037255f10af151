// What people are shown of calls that do not come back: who is where.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_STANDSTILL_WORDS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_STANDSTILL_WORDS_H_

#include <cstdint>
#include <string>

#include "invariants/relations/call_returns/late_calls.h"
#include "invariants/rules/relation.h"

namespace traincheck {

// "300 us", "12 ms", "10 s".
std::string DurationWords(uint64_t us);

// Sites of the fewest ranks come first: they are where the others are not.
Finding FindingOf(const Standstill& standstill);

// Of a call that no other rank is to make.
Finding FindingOf(const LateCall& call);

// The earliest of those that are known.
std::optional<int64_t> StepOf(const Standstill& standstill);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_STANDSTILL_WORDS_H_
