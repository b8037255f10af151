// Is a thread inside a call of a module? Outside, the stage is that of the
// last such call.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_OPEN_MODULES_H_
#define TRAINCHECK_INVARIANTS_RULES_OPEN_MODULES_H_

#include <cstdint>
#include <map>

#include "invariants/facts/process_facts.h"

namespace traincheck {

class OpenModules {
 public:
  void OnCallBegin(const Call& call) {
    if (HasCategory(call, CallCategory::kForward)) ++open_[call.ring];
  }
  void OnCallEnd(const Call& call) {
    if (HasCategory(call, CallCategory::kForward)) --open_[call.ring];
  }
  // Around a call that has begun, itself not counted if it has not been told.
  bool Inside(const Call& call) const {
    const auto open = open_.find(call.ring);
    return open != open_.end() && open->second > 0;
  }

  void Fields(Archive& archive) { archive(open_); }

 private:
  std::map<uint32_t, int32_t> open_;  // by ring
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_OPEN_MODULES_H_
