#include "invariants/rules/skeleton_calls.h"

#include <set>

namespace traincheck {

bool IsOfSkeleton(const std::string& category) {
  // A category that is missing here costs verdicts and not truth: rules on its
  // calls are unknown in steps that were not sampled.
  static const auto* const kSkeleton = new std::set<std::string>{
      "forward",        "train_mode", "backward", "optimizer_init",
      "optimizer_step", "zero_grad",  "fetch",    "loader_iter",
      "loader_next",    "checkpoint"};
  return kSkeleton->count(category) > 0;
}

}  // namespace traincheck
