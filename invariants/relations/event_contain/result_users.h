// Which modules' results another module of the same call may have used: those
// after which the module around them called another one. The last that it calls
// may be there for a caller that does not want its result (a pooler).
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_RESULT_USERS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_RESULT_USERS_H_

#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"

namespace traincheck {

class ResultUsers {
 public:
  void OnCallBegin(const Call& call) {
    if (!HasCategory(call, CallCategory::kForward)) return;
    std::vector<Open>& open = open_[call.ring];
    if (open.empty()) {
      used_.insert(call.object);  // by what is no module
    } else {
      open.back().OnNext(call.object, &used_);
    }
    open.push_back({call.object, 0});
  }
  void OnCallEnd(const Call& call) {
    if (!HasCategory(call, CallCategory::kForward)) return;
    std::vector<Open>& open = open_[call.ring];
    if (!open.empty() && open.back().module == call.object) open.pop_back();
  }
  bool MayBeUsed(uint32_t module) const { return used_.count(module) > 0; }

  void Fields(Archive& archive) { archive(open_, used_); }

 private:
  // A call that has not ended.
  struct Open {
    uint32_t module = 0;
    uint32_t last = 0;  // that it called; 0: none

    void OnNext(uint32_t next, std::set<uint32_t>* used) {
      if (last != 0 && last != next) used->insert(last);
      last = next;
    }
    void Fields(Archive& archive) { archive(module, last); }
  };

  std::map<uint32_t, std::vector<Open>> open_;  // by ring
  std::set<uint32_t> used_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_RESULT_USERS_H_
