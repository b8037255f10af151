// The form of one of TrainCheck's rules, as its files and our imported
// invariants have it:
//
//   {"relation": "APIContainRelation",
//    "params": [{"param_type": "APIParam", "api_full_name": ...}, ...],
//    "precondition": {GROUP: {"inverted": false, "preconditions": [...]}}}
//
// In a param an absent key means "not checked" and null means the value None,
// so the two are kept apart everywhere.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_FORM_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_FORM_H_

#include <string>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// Strict: InvalidArgument names the JSON path below `path` and what is wrong,
// unknown keys, relations and kinds of params among them.
[[nodiscard]] absl::Status CheckRuleForm(const nlohmann::json& rule,
                                         const std::string& path);

// Does it name nothing but what is torch's? Other names say nothing to other
// programs. REQUIRES: CheckRuleForm is ok.
bool NamesTorchOnly(const nlohmann::json& rule);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_FORM_H_
