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
#include <unordered_set>
#include <vector>

#include "invariants/facts/fact_tracker.h"
#include "invariants/facts/variable_state.h"

namespace traincheck {

class VariableStates final : public FactTracker {
 public:
  using FactTracker::FactTracker;

  void OnDefinition(RecordType type, uint32_t id) override;
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

  // Variables that the next gap, and the next step of any optimizer, goes over.
  size_t learned() const { return learned_.size(); }
  size_t open() const {
    return all_may_be_open_ ? states_.size() : open_.size();
  }

  void Fields(Archive& archive) override;

 private:
  // A new one, too, knows what a gap may change.
  VariableState& At(uint32_t variable);
  void Learns(uint32_t variable, const VariableState& state);

  // Class of the module and name in it, of buffers.
  std::set<std::string> written_by_forwards_;
  std::unordered_map<uint32_t, VariableState> states_;
  // Once definitions are missing each record comes with a gap: it goes over
  // those alone of which something was learned since the last, each once.
  std::vector<uint32_t> learned_;
  // Those that were open at some record since the last step of any optimizer.
  std::unordered_set<uint32_t> open_;
  // A hold has changed since: any variable may be open and not held.
  bool all_may_be_open_ = false;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_FACTS_VARIABLE_STATES_H_
