// Are the times of a process's records known? What is missing may have told the
// time, which is told again when a step closes, a little after the step's first
// records: from the second that closes since then on.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_KNOWN_TIMES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_KNOWN_TIMES_H_

#include <cstdint>

#include "invariants/facts/process_facts.h"

namespace traincheck {

class KnownTimes {
 public:
  void OnMark(const ProcessFacts& facts, const MarkEvent& mark) {
    if (mark.kind != MarkKind::kStepClosed) return;
    if (gaps_ != facts.gaps() || ring_ != mark.ring) closed_ = 0;
    gaps_ = facts.gaps();
    ring_ = mark.ring;
    ++closed_;
  }

  // Of what is recorded now on this ring.
  bool Of(const ProcessFacts& facts, uint32_t ring) const {
    if (facts.gaps() == 0) return true;
    return gaps_ == facts.gaps() && ring_ == ring && closed_ >= 2;
  }

  void Fields(Archive& archive) { archive(gaps_, ring_, closed_); }

 private:
  uint64_t gaps_ = 0;
  uint32_t ring_ = 0;
  uint64_t closed_ = 0;  // steps, on that ring since the last gap
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_RETURNS_KNOWN_TIMES_H_
