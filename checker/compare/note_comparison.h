// Compares what has a name and a content in words, and the numbers that hold
// until others are recorded (learning rates, counters).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_CHECKER_COMPARE_NOTE_COMPARISON_H_
#define TRAINCHECK_CHECKER_COMPARE_NOTE_COMPARISON_H_

#include <unordered_map>

#include "checker/compare/step_pair.h"

namespace traincheck {

void CompareNotes(const StepPair& pair);

// The numbers of one process in both runs.
class ScalarBook {
 public:
  // REQUIRES: the steps come in order.
  void Compare(const StepPair& pair);

  // Records are missing here: what they said is not known.
  void ForgetA() { known_a_.clear(); }
  void ForgetB() { known_b_.clear(); }

 private:
  using Known = std::unordered_map<NameId, double>;

  Known known_a_;
  Known known_b_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_CHECKER_COMPARE_NOTE_COMPARISON_H_
