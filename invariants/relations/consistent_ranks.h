// Consistent across ranks: the members of a replica group hold equal values
// of a kind of state at a state point.
//
//   {"across": "ranks", "of": "parameter.grad", "point": "pre_step"}
//
// Windows: one a group, optimizer (or wrapper) and count of its steps (or
// training forwards). Nothing is compared without evidence of replication
// (ReplicaGroupDef); an unreadable tensor is unknown.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RANKS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RANKS_H_

#include <memory>
#include <string>
#include <vector>

#include "invariants/relations/relation.h"

namespace traincheck {

absl::Status CheckConsistentRanks(const nlohmann::json& parameters,
                                  const std::string& path);
std::string DescribeConsistentRanks(const nlohmann::json& parameters);
std::unique_ptr<Generator> NewConsistentRanksGenerator();
// Judges those of `rules` that are of this form.
std::unique_ptr<RunObserver> NewConsistentRanksEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RANKS_H_
