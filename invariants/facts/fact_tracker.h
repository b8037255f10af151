// What keeps memory of a process's events for a fact, or for a few that belong
// together: a class of its own, with its place in trackers.h.
//
// Each is final and Trackers knows its class: no event costs a virtual call,
// and what a tracker leaves empty costs nothing.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_FACT_TRACKER_H_
#define TRAINCHECK_INVARIANTS_FACTS_FACT_TRACKER_H_

#include <cstdint>

#include "invariants/facts/gaps.h"
#include "invariants/facts/ownership.h"
#include "invariants/facts/recorded_steps.h"
#include "invariants/trace/archive.h"
#include "invariants/trace/definitions.h"
#include "invariants/trace/events.h"

namespace traincheck {

// What trackers may read: it has taken over an event before the first of them
// sees it.
struct FactInputs {
  const ProcessDefinitions& definitions;
  const Ownership& ownership;
  const RecordedSteps& recorded;
  const Gaps& gaps;
};

class FactTracker {
 public:
  // `inputs` must outlive this object.
  explicit FactTracker(const FactInputs* inputs) : inputs_(*inputs) {}
  virtual ~FactTracker() = default;

  virtual void OnDefinition(RecordType type, uint32_t id) {}
  virtual void OnCallBegin(const Call& call) {}
  // What belongs to the call: observers see its end after this.
  virtual void OnCallEnd(const Call& call) {}
  // What belongs to the next span: observers have seen the end.
  virtual void AfterCall(const Call& call, CallOutcome outcome) {}
  virtual void OnState(const StateEvent& event) {}
  virtual void OnStatistics(const StatisticsEvent& event) {}
  virtual void OnRows(const RowsEvent& event) {}
  virtual void OnScalar(const ScalarEvent& event) {}
  virtual void OnMark(const MarkEvent& event) {}
  virtual void OnContext(const ContextEvent& event) {}
  // Forgets what missing records could have changed.
  virtual void OnGap() {}

  // Saves or restores what it keeps.
  virtual void Fields(Archive& archive) = 0;

 protected:
  const FactInputs& inputs() const { return inputs_; }

 private:
  const FactInputs& inputs_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_FACT_TRACKER_H_
