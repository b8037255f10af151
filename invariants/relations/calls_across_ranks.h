// What calls are given or return is equal on all ranks that train replicas of
// one model: a form of APIArg and one of Consistent.
//
// Calls are aligned by step and by their place among the step's calls of that
// function. The ranks are those of the process's replica groups, if all of them
// are of the same ranks; otherwise nothing is compared.
//
// Unknown where a call does not tell the value, or records of the step are
// missing.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALLS_ACROSS_RANKS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALLS_ACROSS_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "invariants/relations/function_match.h"
#include "invariants/relations/relation.h"

namespace traincheck {

struct RankCallSpec {
  FunctionMatch function;
  std::string argument;  // "": the result

  // "max_norm of f", "the result of f".
  std::string What() const;
};

struct RankCallRule {
  size_t index = 0;
  RankCallSpec spec;
};

std::unique_ptr<RunObserver> NewCallsAcrossRanksEvaluator(
    std::vector<RankCallRule> rules, RuleSink* sink);

// The ranks of all replica groups of the process, where these are the same;
// empty: there is none, or several.
std::vector<int32_t> ReplicaRanks(const ProcessFacts& facts);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALLS_ACROSS_RANKS_H_
