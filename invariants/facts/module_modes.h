// Fact "call.eval_dropout_p", its condition: is the module that makes a call in
// evaluation mode?
//
// Inputs: calls of modules with their training flags. Of a call outside all
// modules no. Unknown after missing records until a module is called on the
// thread.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_MODULE_MODES_H_
#define TRAINCHECK_INVARIANTS_FACTS_MODULE_MODES_H_

#include <cstdint>
#include <map>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/events.h"

namespace traincheck {

class ModuleModes final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (!HasCategory(call, CallCategory::kForward)) return;
    Thread& thread =
        threads_.try_emplace(call.ring, Thread{{}, !missed_}).first->second;
    if (call.Is(kRootModuleCall)) thread = Thread();
    thread.evaluating.push_back(!call.Is(kModuleTraining));
  }
  // Observers see the end of a module's call as made by it.
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (!HasCategory(call, CallCategory::kForward)) return;
    std::vector<uint8_t>& open = threads_[call.ring].evaluating;
    if (!open.empty()) open.pop_back();
  }
  void OnGap() override {
    missed_ = true;
    for (auto& [ring, thread] : threads_) thread = {{}, false};
  }

  // Of the innermost module whose call is open on the thread.
  Tri InEvaluation(uint32_t ring) const {
    const auto thread = threads_.find(ring);
    if (thread == threads_.end()) return missed_ ? Tri::kUnknown : Tri::kNo;
    const Thread& known = thread->second;
    if (!known.evaluating.empty()) return ToTri(known.evaluating.back() != 0);
    return known.sure ? Tri::kNo : Tri::kUnknown;
  }

  void Fields(Archive& archive) override { archive(missed_, threads_); }

 private:
  struct Thread {
    std::vector<uint8_t> evaluating;  // open calls, the innermost last
    bool sure = true;                 // around these there is none
    void Fields(Archive& archive) { archive(evaluating, sure); }
  };

  bool missed_ = false;                 // threads that are new may be in a call
  std::map<uint32_t, Thread> threads_;  // by ring
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_MODULE_MODES_H_
