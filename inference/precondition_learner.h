// Learns when a rule holds: the smallest AND list of clauses that no window
// without the event fulfils, and most windows with it do.
//
// Only facts of kind flag and text become constants: a number (a rate, a
// count) is an accident of its run. Sizes are tried from 1 to 3; among lists of
// one size the one that covers most wins, then the first in canonical order.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_
#define TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/precondition.h"

namespace traincheck {

// Windows that look the same to all facts.
struct WeightedExample {
  bool holds = false;
  uint64_t windows = 0;
  std::vector<FactValue> facts;  // in the order of the facts given
};

// nullopt: nothing separates them. REQUIRES: each example has one value for
// each fact.
std::optional<Precondition> LearnPrecondition(
    const std::vector<const Fact*>& facts,
    const std::vector<WeightedExample>& examples);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_
