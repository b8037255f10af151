// The steps of a process as windows: when one has closed, and what was recorded
// of it. The first one holds the set-up of the program and is like no other;
// the one that is open at the end is not whole.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_STEP_WINDOWS_H_
#define TRAINCHECK_INVARIANTS_RULES_STEP_WINDOWS_H_

#include <cstdint>

#include "invariants/facts/process_facts.h"

namespace traincheck {

struct StepWindow {
  uint64_t step = 0;
  uint64_t gaps = 0;
  RecordedSince recorded;
  bool whole = false;  // it began in order, and is not the first

  void Fields(Archive& archive) { archive(step, gaps, recorded, whole); }
};

class StepWindows {
 public:
  // Call it first at each event. True: the window in closed() has just ended,
  // and what comes now belongs to the next.
  bool Advance(const ProcessFacts& facts) {
    const uint64_t step = facts.clock().step();
    // A clock that finds its count again does so a little after the step's
    // first events.
    const bool known = in_sync_ && facts.clock().synced();
    in_sync_ = facts.clock().synced();
    if (step == open_.step) return false;
    closed_ = open_;
    open_ = {step, facts.gaps(), facts.recorded().now(),
             known && step == closed_.step + 1};
    return true;
  }
  const StepWindow& closed() const { return closed_; }
  const StepWindow& open() const { return open_; }

  void Fields(Archive& archive) { archive(open_, closed_, in_sync_); }

 private:
  StepWindow open_;
  StepWindow closed_;
  bool in_sync_ = true;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_STEP_WINDOWS_H_
