// What calls are given or return is equal on all ranks that train replicas of
// one model: a form of APIArg and one of Consistent.
//
//   {"is": "equal", "function": FUNCTION, "argument": "max_norm",
//    "across": "ranks"}
//   {"across": "ranks", "of": "return", "function": FUNCTION}
//
// Calls are aligned by step and by their place among the step's calls of that
// function. The ranks are those of the process's replica groups, if all of them
// are of the same ranks; otherwise nothing is compared.
//
// Unknown where a call does not tell the value, or records of the step are
// missing.
#ifndef TRAINCHECK_INVARIANTS_RULES_CALLS_ACROSS_RANKS_H_
#define TRAINCHECK_INVARIANTS_RULES_CALLS_ACROSS_RANKS_H_

#include <cstdint>
#include <vector>

#include "invariants/rules/spec_relation.h"

namespace traincheck {

// The relation, or form of one, that makes its hypotheses like this.
const Relation* NewCallsAcrossRanks(const char* name,
                                    MakeGenerator make_generator);

// The ranks of all replica groups of the process, where these are the same;
// empty: there is none, or several.
std::vector<int32_t> ReplicaRanks(const ProcessFacts& facts);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_CALLS_ACROSS_RANKS_H_
