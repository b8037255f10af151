#include "checker/violation_words.h"

#include <algorithm>

#include "checker/incidents/families.h"

namespace traincheck {
namespace {

// Is the rule, or one that it was merged from, of this format?
bool IsOfFormat(const nlohmann::json& origin, const char* wanted) {
  if (!origin.is_object()) return false;
  const nlohmann::json format = origin.value("format", nlohmann::json());
  if (format == wanted) return true;
  // A merged rule lists the origins of its parts, which may be merged
  // themselves.
  const auto of = origin.find("of");
  return format == "merged" && of != origin.end() &&
         std::any_of(of->begin(), of->end(), [wanted](const auto& part) {
           return IsOfFormat(part, wanted);
         });
}

bool IsLearned(const nlohmann::json& origin) {
  return IsOfFormat(origin, "learned");
}

bool IsBuiltIn(const nlohmann::json& origin) {
  return IsOfFormat(origin, "builtin");
}

// Why the rule is believed.
std::string BasisOf(const Invariant& rule) {
  if (IsBuiltIn(rule.origin)) return kBuiltInBasis;
  if (!IsLearned(rule.origin)) return "rule from a file";
  return "learned rule; reference runs kept it in " +
         std::to_string(rule.support) + " windows";
}

std::string SinceWords(const Violation& violation) {
  if (!violation.first_step) return "At an unknown step ";
  // An open one may go on in the next step, so it is not yet known to be of one
  // step only.
  const bool once = !violation.open && violation.last_step &&
                    *violation.first_step == *violation.last_step;
  return (once ? "In step " : "Since step ") +
         std::to_string(*violation.first_step) + " ";
}

}  // namespace

// Only of a rule that was learned is it known
// that its reference runs kept it: in every window that its precondition lets
// it judge, whether it says always, never or how often.
std::string AgainstWords(const Invariant& rule) {
  if (!IsLearned(rule.origin)) return "; the rule says: " + rule.text;
  const bool everywhere = rule.precondition.empty();
  return everywhere ? "; no reference run shows this"
                    : "; no reference run shows this where the rule applies";
}

void AddWords(const Invariant& rule, Violation* violation) {
  const Family& family = FamilyOf(*rule.rule);
  RuleNotes& notes = violation->notes;
  notes = NotesOf(rule.origin);
  if (notes.headline.empty()) {
    notes.headline = HeadlineOf(family, violation->seen, violation->apis);
  }
  if (notes.why.empty()) notes.why = family.why;
  if (notes.fix.empty()) notes.fix = family.fix;
  violation->place = PlaceOf(*rule.rule);
  violation->learned = !IsBuiltIn(rule.origin);
  violation->basis = BasisOf(rule);
  violation->headline = SinceWords(*violation) + notes.headline;
}

}  // namespace traincheck
