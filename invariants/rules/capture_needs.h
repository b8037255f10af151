// What must be recorded so that rules can be decided. Relations and facts say
// what they read; a set's plan is the union over its rules (set_plan.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_CAPTURE_NEEDS_H_
#define TRAINCHECK_INVARIANTS_RULES_CAPTURE_NEEDS_H_

#include <cstdint>
#include <map>
#include <string>

#include "invariants/rules/capture_plan.h"

namespace traincheck {

class CaptureNeeds {
 public:
  // Calls of what has this name or this role, and of their content what the
  // caller adds to the result.
  PlannedCall& Calls(const std::string& name_or_role) {
    return calls_[name_or_role];
  }
  // Calls of all functions of a category. Where the agent does not record
  // them under every plan, nothing less than all calls will do: a plan names
  // functions.
  void CallsOfCategory(const std::string& category);

  // `value` of StateValueNames at `point` of StatePointNames.
  void State(const std::string& value, const std::string& point) {
    state_[value].insert(point);
  }
  // Counts of what is not finite, and digests of rows, likewise.
  void Statistics(const std::string& value, const std::string& point) {
    statistics_[value].insert(point);
  }
  void Rows(const std::string& value, const std::string& point) {
    rows_[value].insert(point);
  }
  // The states of random generators around every outermost forward.
  void Generators() { generators_ = true; }
  // What gradients are, how they came to be and that they were cleared: one
  // point alone cannot tell a gradient that was computed anew, and is equal,
  // from one that is left over.
  void Gradients();
  // A fact that the agent looks at itself, from this version of Sight::looks
  // on.
  void LooksAt(const std::string& fact, uint32_t since) {
    looked_at_[fact] = since;
  }
  // What the tensors of checkpoints hold: not read where they are on a device.
  void SavedContents() { LooksAt("saved.contents", 1); }

  const std::map<std::string, PlannedCall>& calls() const { return calls_; }
  bool all_calls() const { return all_calls_; }
  const PlannedState& state() const { return state_; }
  const PlannedState& statistics() const { return statistics_; }
  const PlannedState& rows() const { return rows_; }
  bool generators() const { return generators_; }
  const std::map<std::string, uint32_t>& looked_at() const {
    return looked_at_;
  }

 private:
  std::map<std::string, PlannedCall> calls_;
  bool all_calls_ = false;
  PlannedState state_;
  PlannedState statistics_;
  PlannedState rows_;
  bool generators_ = false;
  std::map<std::string, uint32_t> looked_at_;
};

// Is every function of the category recorded under every plan? A table of
// catalogue.py's skeleton.
bool IsAlwaysRecorded(const std::string& category);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_CAPTURE_NEEDS_H_
