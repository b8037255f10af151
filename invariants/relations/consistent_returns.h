// Consistent across ranks, of what calls return: the norm that clipping gives.
//
//   {"across": "ranks", "of": "return", "function": FUNCTION}
//
// See calls_across_ranks.h. Needs calls of the function with their results and
// the digests of these.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RETURNS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RETURNS_H_

#include <memory>
#include <string>
#include <vector>

#include "invariants/relations/relation.h"

namespace traincheck {

absl::Status CheckConsistentReturns(const nlohmann::json& parameters,
                                    const std::string& path);
std::string DescribeConsistentReturns(const nlohmann::json& parameters);
void AddConsistentReturnsNeeds(const nlohmann::json& parameters,
                               CaptureNeeds* needs);
std::unique_ptr<Generator> NewConsistentReturnsGenerator();
// Judges those of `rules` that are of this form.
std::unique_ptr<RunObserver> NewConsistentReturnsEvaluator(
    const std::vector<Rule>& rules, RuleSink* sink);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CONSISTENT_RETURNS_H_
