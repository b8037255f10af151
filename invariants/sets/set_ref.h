// How people write which sets and which of their rules they mean.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_SET_REF_H_
#define TRAINCHECK_INVARIANTS_SETS_SET_REF_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace traincheck {

// The set of rules that the daemon has of itself; nobody else's has its name.
inline constexpr char kBuiltInSet[] = "builtin";

// NAME, its newest version, or NAME@VERSION.
struct SetRef {
  std::string name;
  uint32_t version = 0;  // 0: the newest
};

// InvalidArgument where VERSION is not a number from 1 on. Whether the name
// can be one is not looked at.
[[nodiscard]] absl::StatusOr<SetRef> ParseSetRef(const std::string& text);

// NAME, or NAME@VERSION of a version that is not 0.
std::string ToText(const SetRef& set);

// The rules of some sets, but for some of them.
struct RuleSelection {
  std::vector<SetRef> sets;
  std::vector<std::string> without;  // ids, each once, in their order
};

// Sets and, each behind a minus sign, ids of rules that are left out, separated
// by commas: "builtin,rules@3,-51df97ea403bb4bf". InvalidArgument where no set
// is named, or one of them is not a set, is empty or is named twice. Whether
// the sets have the rules is not looked at.
[[nodiscard]] absl::StatusOr<RuleSelection> ParseSelection(
    const std::string& text);

// What ParseSelection reads.
std::string ToText(const RuleSelection& selection);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_REF_H_
