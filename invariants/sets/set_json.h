// Invariants and sets in JSON (docs/invariant-json.md), in both directions.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_SETS_SET_JSON_H_
#define TRAINCHECK_INVARIANTS_SETS_SET_JSON_H_

#include <string>

#include "absl/status/statusor.h"
#include "invariants/rules/invariant.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Canonical: keys sorted, no white space that depends on anything.
nlohmann::json ToJson(const Invariant& invariant);
nlohmann::json ToJson(const InvariantSet& set);

// Trusts nothing: InvalidArgument with the JSON path of what is wrong
// ("invariants[3].relation: \"Foo\" is not a relation of this version").
// The id is recomputed; one that differs from its content is an error.
[[nodiscard]] absl::StatusOr<Invariant> InvariantFromJson(
    const nlohmann::json& json);
[[nodiscard]] absl::StatusOr<InvariantSet> SetFromJsonUntrusted(
    const std::string& text);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_SETS_SET_JSON_H_
