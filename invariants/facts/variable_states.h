// Facts of variables: the state of each, and "buffer.written_by_forward": do
// training forwards write a buffer, in its module or in another of its class?
//
// Inputs: state records and their statistics, begins and ends of steps. When a
// state is unknown: variable_state.h; where a step is not sampled, all of it
// is, as after missing records.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATES_H_
#define TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATES_H_

#include <cstdint>
#include <set>
#include <string>
#include <unordered_map>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/variable_state.h"

namespace traincheck {

class VariableStates final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnCallBegin(const Call& call) override;
  void AfterCall(const Call& call, CallOutcome outcome) override;
  void OnState(const StateEvent& event) override;
  void OnStatistics(const StatisticsEvent& event) override;
  void OnMark(const MarkEvent& mark) override;
  void OnGap() override;

  // Null before its first state record.
  const VariableState* Find(uint32_t variable) const;
  const std::unordered_map<uint32_t, VariableState>& all() const {
    return states_;
  }
  bool IsWrittenByForwards(uint32_t variable) const;

  void Fields(Archive& archive) override;

 private:
  // Class of the module and name in it, of buffers.
  std::set<std::string> written_by_forwards_;
  std::unordered_map<uint32_t, VariableState> states_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATES_H_
