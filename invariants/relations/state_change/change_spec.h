// The parameters of StateChange (state_change.h).
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_CHANGE_SPEC_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_CHANGE_SPEC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "invariants/facts/process_facts.h"
#include "invariants/rules/relation.h"

namespace traincheck {

inline constexpr uint64_t kLongestPeriod = 64;  // steps

// Of parameters: see IsFrozen.
inline constexpr char kFrozen[] = "frozen";

// Exactly one of `variable` and `role` is set.
struct ChangeSpec {
  VariableKind kind = VariableKind::kParameter;  // or kBuffer
  std::string variable = {};                     // full name
  std::string role = {};  // kFrozen, or VariableInfo::ClassRole()
  uint64_t steps = 0;     // 0: never
  // Asked of a buffer only once a training forward has written such a one.
  bool after_forward = false;

  nlohmann::json ToJson() const;
  std::string Describe() const;
  void AddNeeds(CaptureNeeds* needs) const;
  static std::vector<const Fact*> Facts() { return {}; }
  static absl::StatusOr<ChangeSpec> Parse(const nlohmann::json& parameters,
                                          const std::string& path);
  bool Matches(const ProcessFacts& facts, uint32_t variable_id) const;
};

// A parameter that nobody should change: it requires no gradient, no optimizer
// holds it, and it copies nothing.
bool IsFrozen(const ProcessFacts& facts, uint32_t variable);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_STATE_CHANGE_CHANGE_SPEC_H_
