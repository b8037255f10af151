// How people write which sets they mean.
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

// One or more, separated by commas: "builtin,rules@3". InvalidArgument where
// one of them is not a set, is empty or is named twice.
[[nodiscard]] absl::StatusOr<std::vector<SetRef>> ParseSetRefs(
    const std::string& text);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_REF_H_
