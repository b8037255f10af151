// TrainCheck's invariant files (JSON lines, one rule a line) to invariants of
// ours and back.
//
// A rule becomes an Invariant of the relation "TrainCheck" whose parameters are
// the line's relation, params and precondition as they stand there; what is no
// content (line, description, counts) goes into its `origin`, so that writing
// gives the same JSON values on the same lines again.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_INVARIANT_FILE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_INVARIANT_FILE_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "invariants/rules/invariant.h"
#include "nlohmann/json.hpp"

namespace traincheck {

inline constexpr char kTrainCheckRelation[] = "TrainCheck";

// All rules of the file or none: InvalidArgument names the line, the JSON path
// in it and what is wrong ("line 17: params[0].param_type: missing"). Lines
// with the same content become one invariant; empty lines are passed over.
// `experiments`: of rules that name what is not torch's; the others are
// general. Sorted by id.
[[nodiscard]] absl::StatusOr<std::vector<Invariant>> RulesFromFileUntrusted(
    std::string_view text, const std::vector<std::string>& experiments);

// A line as it stands there: relation, params and precondition.
struct RuleLine {
  uint64_t number = 0;  // from 1
  nlohmann::json content;
};

// All lines, in their order and none of them joined; errors as above.
[[nodiscard]] absl::StatusOr<std::vector<RuleLine>> RuleLinesFromFileUntrusted(
    std::string_view text);

struct RuleFile {
  std::string text;
  size_t lines = 0;
  size_t left_out = 0;  // invariants of other relations: no form there
};

// The rules among `invariants` in the order of the lines that they came from,
// then those that came from none. What an `origin` says wrongly counts as not
// said.
RuleFile FileOfRules(const std::vector<Invariant>& invariants);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_INVARIANT_FILE_H_
