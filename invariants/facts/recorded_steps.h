// What a process recorded where: everything that its plan names, or the
// skeleton alone (steps that were not sampled).
//
// Inputs: CaptureMode marks. Known from the start: a process begins with
// everything. A mode of a later version counts as the skeleton.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_RECORDED_STEPS_H_
#define TRAINCHECK_INVARIANTS_FACTS_RECORDED_STEPS_H_

#include <cstdint>
#include <string>

#include "invariants/facts/recorded_functions.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

// Where a window begins.
struct RecordedSince {
  bool whole = true;
  uint64_t changes = 0;
  uint64_t plans = 0;
  void Fields(Archive& archive) { archive(whole, changes, plans); }
};

class RecordedSteps {
 public:
  void OnMark(const MarkEvent& mark) {
    functions_.OnMark(mark);
    // The user may end a step anywhere within a call.
    if (mark.kind == MarkKind::kUserStep) user_steps_ = true;
    if (mark.kind != MarkKind::kCaptureMode) return;
    whole_ = mark.value == static_cast<uint64_t>(CaptureMode::kAll);
    ++changes_;
    const bool at_begin =
        mark.call && !user_steps_ && ClosesAsItBegins(*mark.call);
    ring_ = at_begin ? mark.ring : 0;
    call_ = at_begin ? mark.call->number : 0;
  }

  // Is everything recorded now?
  bool whole() const { return whole_; }
  RecordedSince now() const { return {whole_, changes_, functions_.plans()}; }
  const RecordedFunctions& functions() const { return functions_; }

  // Was everything recorded from `begin` to now, in a window that begins with
  // this call?
  bool WholeSince(const RecordedSince& begin, uint32_t ring,
                  uint64_t call) const {
    if (begin.whole && begin.changes == changes_) return true;
    // The step closed, and the next one was sampled, before anything happened
    // in the call.
    return whole_ && begin.changes + 1 == changes_ && call_ != 0 &&
           ring_ == ring && call_ == call;
  }

  static std::string Words(const std::string& name) {
    return "the step was not sampled on " + name;
  }

  void Fields(Archive& archive) {
    archive(whole_, changes_, user_steps_, ring_, call_, functions_);
  }

 private:
  static bool ClosesAsItBegins(const Call& call) {
    return HasCategory(call, CallCategory::kForward) ||
           HasCategory(call, CallCategory::kZeroGrad) ||
           HasCategory(call, CallCategory::kOptimizerStep);
  }

  RecordedFunctions functions_;
  bool whole_ = true;
  uint64_t changes_ = 0;
  bool user_steps_ = false;
  // The call at whose begin the last change was; 0, 0: at none.
  uint32_t ring_ = 0;
  uint64_t call_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_RECORDED_STEPS_H_
