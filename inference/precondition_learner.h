// Learns when a rule holds: at most three lists of clauses, of which no window
// without the event fulfils any, and most windows with it fulfil one.
//
// Only facts of kind flag and text become constants: a number (a rate, a
// count) is an accident of its run. Lists of one clause are tried first, then
// of two and three; among lists of one size the one that covers most windows
// wins, then the first in canonical order. Another list is added while it
// covers a tenth of all windows that the ones before leave out.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_
#define TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "invariants/facts/fact.h"
#include "invariants/rules/precondition.h"

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

// Would the rule be violated in one of these windows under the condition?
bool IsViolated(const Precondition& precondition,
                const std::vector<const Fact*>& facts,
                const std::vector<WeightedExample>& examples);

}  // namespace traincheck

#endif  // TRAINCHECK_INFERENCE_PRECONDITION_LEARNER_H_
