// A capture plan: what the agent records of calls and of state
// (docs/capture-plan.md). The same JSON goes into a file for the agent's start
// and over the wire when it changes during a run.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RULES_CAPTURE_PLAN_H_
#define TRAINCHECK_INVARIANTS_RULES_CAPTURE_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// No process takes a larger one.
inline constexpr size_t kMaxCapturePlanBytes = 1u << 20;

// What is recorded of calls of a function besides begin and end.
struct PlannedCall {
  bool all_arguments = false;
  std::set<std::string> arguments;
  std::set<std::string> texts;
  std::set<std::string> digests;
  bool returns = false;
  bool autograd = false;
};

// Of state: which values ("parameter.grad") at which points ("pre_step").
using PlannedState = std::map<std::string, std::set<std::string>>;

// The values and points that a plan may name.
const std::set<std::string>& StateValueNames();
const std::set<std::string>& StatePointNames();

// Reads a plan that somebody wrote, strictly, and gives it back as it is to
// be sent. InvalidArgument with the JSON path of what is wrong and, for a key
// that is not known, its name.
[[nodiscard]] absl::StatusOr<nlohmann::json> PlanFromJsonUntrusted(
    const std::string& text);

// The plan under another version, as text.
std::string PlanText(nlohmann::json plan, uint64_t version);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_CAPTURE_PLAN_H_
