// Fact "call.inside_wrapper": does a call of a wrapper
// (DistributedDataParallel) enclose a call?
//
// Inputs: definitions of wrappers, their calls. A call that no module call
// encloses is outside. Others are unknown after missing records until the next
// such call of their thread. Once the gradients of a step are reduced, a call
// past the wrapper measures something: it is not asked until the step is over.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_WRAPPER_CALLS_H_
#define TRAINCHECK_INVARIANTS_FACTS_WRAPPER_CALLS_H_

#include <cstdint>
#include <map>
#include <set>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class WrapperCalls final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnDefinition(RecordType type, uint32_t id) override {
    if (type != RecordType::kObjectDef) return;
    const ObjectInfo* object = inputs().definitions.Object(id);
    if (!object || object->wrapped == 0) return;
    wrappers_.insert(id);
    wrapped_.insert(object->wrapped);
  }

  void OnCallBegin(const Call& call) override {
    if (wrappers_.empty()) return;
    if (call.Is(kOutermost) && HasCategory(call, CallCategory::kBackward)) {
      is_reduced_ = reduces_next_;
      reduces_next_ = false;
    }
    if (IsOptimizerStep(call)) is_reduced_ = false;
    if (!HasCategory(call, CallCategory::kForward)) return;
    Thread& thread =
        threads_.try_emplace(call.ring, Thread{0, !missed_}).first->second;
    if (call.Is(kRootModuleCall)) thread = Thread();
    if (wrappers_.count(call.object)) {
      ++thread.open;
      reduces_next_ = true;
    }
  }
  // Observers see the end of a wrapper's call as enclosed by it.
  void AfterCall(const Call& call, CallOutcome outcome) override {
    if (!wrappers_.count(call.object)) return;
    if (!HasCategory(call, CallCategory::kForward)) return;
    Thread& thread = threads_[call.ring];
    if (thread.open > 0) --thread.open;
  }
  void OnGap() override {
    missed_ = true;
    reduces_next_ = is_reduced_ = false;
    for (auto& [ring, thread] : threads_) thread.sure = false;
  }

  // Has a backward through a wrapper run since the last step of an optimizer,
  // and none past it?
  bool is_reduced() const { return is_reduced_; }

  // Is there a wrapper around this module?
  bool IsWrapped(uint32_t object) const { return wrapped_.count(object) != 0; }

  Tri Enclose(const Call& call) const {
    if (call.Is(kRootModuleCall)) return Tri::kNo;
    const auto thread = threads_.find(call.ring);
    if (thread == threads_.end()) return Tri::kUnknown;
    if (thread->second.open > 0) return Tri::kYes;
    return thread->second.sure ? Tri::kNo : Tri::kUnknown;
  }

  void Fields(Archive& archive) override {
    archive(wrappers_, wrapped_, missed_, reduces_next_, is_reduced_, threads_);
  }

 private:
  struct Thread {
    uint32_t open = 0;  // calls of wrappers
    bool sure = true;   // no more than these
    void Fields(Archive& archive) { archive(open, sure); }
  };

  std::set<uint32_t> wrappers_;
  std::set<uint32_t> wrapped_;
  bool missed_ = false;        // threads that are new may be in a call
  bool reduces_next_ = false;  // a wrapper was called since the last backward
  bool is_reduced_ = false;
  std::map<uint32_t, Thread> threads_;  // by ring
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_WRAPPER_CALLS_H_
