// Compares what was recorded of variables in a step, exactly by digest.
// Aligned by variable, state point and ordinal.
//
// Threads: pure functions.
#ifndef TRAINCHECK_CHECKER_COMPARE_STATE_COMPARISON_H_
#define TRAINCHECK_CHECKER_COMPARE_STATE_COMPARISON_H_

#include <cstdint>
#include <set>

#include "checker/compare/step_pair.h"

namespace traincheck {

// Parameters and buffers by what was recorded of them last in the step.
struct VariableCounts {
  uint64_t compared = 0;
  uint64_t different = 0;
};

// Random generators of one process in both runs. One that differs from its
// first record on was not seeded alike. Programs seed those that they draw
// from, so that this alone says nothing: such a generator is left aside until
// it is alike.
class GeneratorBook {
 public:
  // Is a record of it to be compared?
  bool Counts(NameId generator, bool different) {
    if (!different) {
      alike_.insert(generator);
      return true;
    }
    return alike_.count(generator) > 0;
  }

 private:
  std::set<NameId> alike_;  // at some record
};

// `generators`: null to compare all of them. REQUIRES: the steps come in order.
VariableCounts CompareStates(const StepPair& pair, GeneratorBook* generators);

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_STATE_COMPARISON_H_
