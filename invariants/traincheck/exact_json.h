// JSON whose numbers come out as they went in: text with an integer that no 64
// bits hold is refused instead of rounded.
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_EXACT_JSON_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_EXACT_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// InvalidArgument if the text is no JSON (bare NaN and Infinity are none),
// nests deeper than a rule in a set may, or has such a number.
[[nodiscard]] absl::StatusOr<nlohmann::json> ParseExactJsonUntrusted(
    const std::string& text);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_EXACT_JSON_H_
