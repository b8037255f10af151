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

// The daemon's built-in set of rules; nobody else's has its name.
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
  // Ids, each once, in their order: those that are left out, and those whose
  // violations are advice, whatever their sets say.
  std::vector<std::string> without;
  std::vector<std::string> advised;
};

// Sets, ids of rules that are left out, each behind a minus sign, and of rules
// that advise, each behind a question mark, separated by commas:
// "builtin,rules@3,-51df97ea403bb4bf,?4b2d1203ccacd314". InvalidArgument where
// no set is named, or one of them is not a set, is empty or is named twice.
// Whether the sets have the rules is not looked at.
[[nodiscard]] absl::StatusOr<RuleSelection> ParseSelection(
    const std::string& text);

// What ParseSelection reads.
std::string ToText(const RuleSelection& selection);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_REF_H_
