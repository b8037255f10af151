// One of TrainCheck's rules in plain English, made of its content: the text in
// the file is often a placeholder ("TBD merged").
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_WORDS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_WORDS_H_

#include <string>

#include "nlohmann/json.hpp"

namespace traincheck {

// With its precondition. REQUIRES: CheckRuleForm(rule) is ok.
std::string DescribeRule(const nlohmann::json& rule);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_RULE_WORDS_H_
