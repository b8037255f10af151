// Consistent across ranks, of learning rates: those of the parameter groups
// that hold replicas, when their optimizer's step begins.
//
//   {"across": "ranks", "of": "optimizer.lr", "point": "pre_step"}
//
// Ranks and windows as in consistent_ranks.h. Needs nothing: rates are always
// recorded.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RATES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RATES_H_

#include <memory>
#include <string>
#include <vector>

#include "invariants/relations/relation.h"

namespace traincheck {

absl::Status CheckConsistentRates(const nlohmann::json& parameters,
                                  const std::string& path);
std::string DescribeConsistentRates();
std::unique_ptr<Generator> NewConsistentRatesGenerator();
// Judges those of `rules` that are of this form.
std::unique_ptr<RunObserver> NewConsistentRatesEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RATES_H_
