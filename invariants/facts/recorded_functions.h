// Of which functions a process records calls, as it says by FunctionOn and
// FunctionOff marks. Calls of modules (forwards) are recorded in any case. A
// process that says nothing (of an earlier version) records everything.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_RECORDED_FUNCTIONS_H_
#define TRAINCHECK_INVARIANTS_FACTS_RECORDED_FUNCTIONS_H_

#include <cstdint>
#include <map>

#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class RecordedFunctions {
 public:
  void OnMark(const MarkEvent& mark) {
    if (mark.kind == MarkKind::kPlanApplied) ++plans_;
    if (mark.kind == MarkKind::kFunctionOff) on_.erase(mark.value);
    if (mark.kind == MarkKind::kFunctionOn) {
      on_.emplace(mark.value, plans_);
      told_ = true;
    }
  }

  bool told() const { return told_; }
  // Plans applied so far: the time for RecordsSince.
  uint64_t plans() const { return plans_; }
  // Was it recorded since then? What is on before the first plan is applied
  // was so from the start.
  bool RecordsSince(uint32_t function, uint64_t plans) const {
    const auto at = on_.find(function);
    return at != on_.end() && at->second <= plans;
  }

  void Fields(Archive& archive) { archive(told_, plans_, on_); }

 private:
  bool told_ = false;
  uint64_t plans_ = 0;
  std::map<uint64_t, uint64_t> on_;  // function -> plans before
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_RECORDED_FUNCTIONS_H_
