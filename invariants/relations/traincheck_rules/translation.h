// Which of our own rules mean the same as one of TrainCheck's, so that an
// imported rule is judged on runs recorded here.
//
// To translate one more relation, add a row to the table in translation.cc.
//
// Threads: plain values.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRANSLATION_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRANSLATION_H_

#include <string>
#include <vector>

#include "invariants/rules/precondition.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// A rule of the relation EventContain.
struct NativeRule {
  nlohmann::json parameters;
  Precondition precondition;
};

struct Translation {
  // All of them must hold. Their windows do not overlap: a stage of
  // "training or testing" makes one rule for each.
  std::vector<NativeRule> rules;
  // Why there are none; "": there are. The same for all rules of a kind, so
  // that a summary can count them.
  std::string why_not;
};

// REQUIRES: CheckRuleForm(rule) is ok.
Translation TranslateRule(const nlohmann::json& rule);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_TRAINCHECK_RULES_TRANSLATION_H_
