// Fact "call.rng_advanced": did an outermost forward draw from a random
// generator?
//
// Inputs: states of the generators (Python's, NumPy's, torch's) where such a
// forward begins and ends. Unknown until it ends, where one of the two was not
// recorded, and after missing records until the next one.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_RANDOM_DRAWS_H_
#define TRAINCHECK_INVARIANTS_FACTS_RANDOM_DRAWS_H_

#include <cstdint>
#include <map>
#include <set>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/tri.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/call_contexts.h"
#include "invariants/trace/events.h"

namespace traincheck {

class RandomDraws final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override {
    if (threads_.empty() || !IsRootForward(call)) return;
    const auto thread = threads_.find(call.ring);
    if (thread != threads_.end()) thread->second = Thread();
  }

  void OnState(const StateEvent& event) override {
    if (event.variable->kind != VariableKind::kGenerator) return;
    if (!event.call || !event.Has(kHasData)) return;
    if (event.point == StatePoint::kForwardBegin) {
      threads_[event.call->ring].before[event.variable_id] = event.data;
    } else if (event.point == StatePoint::kForwardEnd) {
      Compare(event, &threads_[event.call->ring]);
    }
  }

  void OnGap() override { threads_.clear(); }

  // Of the last outermost forward of the thread.
  Tri Advanced(uint32_t ring) const {
    const auto thread = threads_.find(ring);
    return thread == threads_.end() ? Tri::kUnknown : thread->second.advanced;
  }
  // Has some forward of this module drawn?
  bool Draws(uint32_t object) const { return drawing_.count(object) != 0; }

  void Fields(Archive& archive) override { archive(threads_, drawing_); }

 private:
  struct Thread {
    std::map<uint32_t, uint64_t> before;  // digest by generator
    Tri advanced = Tri::kUnknown;
    void Fields(Archive& archive) { archive(before, advanced); }
  };

  void Compare(const StateEvent& event, Thread* thread) {
    // NumPy may be imported within a forward.
    const auto before = thread->before.find(event.variable_id);
    if (before == thread->before.end()) return;
    if (before->second != event.data) {
      thread->advanced = Tri::kYes;
      drawing_.insert(event.call->object);
    } else if (thread->advanced == Tri::kUnknown) {
      thread->advanced = Tri::kNo;
    }
  }

  std::map<uint32_t, Thread> threads_;  // by ring
  std::set<uint32_t> drawing_;          // modules
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_RANDOM_DRAWS_H_
