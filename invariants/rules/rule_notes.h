// What somebody wrote down of a rule for those who meet its violation, in its
// origin (docs/invariant-json.md). Rules that were learned have none.
//
// Threads: pure function.
#ifndef TRAINCHECK_INVARIANTS_RULES_RULE_NOTES_H_
#define TRAINCHECK_INVARIANTS_RULES_RULE_NOTES_H_

#include <string>
#include <vector>

#include "nlohmann/json.hpp"

namespace traincheck {

struct RuleNotes {
  std::string headline;   // a clause after "Since step 5 ": what is wrong
  std::string why;        // the training goes on and looks well
  std::string fix;        // what to do
  std::string reference;  // where the field says so
  // Headlines of rules that this error breaks too: what they say of a training
  // follows from it.
  std::vector<std::string> brings;
  // Worth a look, no alarm. Every other rule alerts.
  bool advice = false;
};

// Of a rule that came from several sets: the first that has any. Members that
// are not texts (or lists of texts) count as empty: anybody may have written
// the origin.
RuleNotes NotesOf(const nlohmann::json& origin);

// Makes the violations of the rule of this origin advice, whatever it said.
void MakeAdvice(nlohmann::json* origin);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RULE_NOTES_H_
