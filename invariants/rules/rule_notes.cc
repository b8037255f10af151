#include "invariants/rules/rule_notes.h"

namespace traincheck {
namespace {

std::string Text(const nlohmann::json& origin, const char* key) {
  const auto found = origin.find(key);
  if (found == origin.end() || !found->is_string()) return "";
  return found->get<std::string>();
}

}  // namespace

RuleNotes NotesOf(const nlohmann::json& origin) {
  if (!origin.is_object()) return {};
  RuleNotes notes{Text(origin, "why"), Text(origin, "fix"),
                  Text(origin, "reference")};
  if (!notes.why.empty() || !notes.fix.empty()) return notes;
  const auto of = origin.find("of");
  if (of == origin.end() || !of->is_array()) return {};
  // Sets are merged at one level only.
  for (const nlohmann::json& part : *of) {
    if (!part.is_object()) continue;
    notes = {Text(part, "why"), Text(part, "fix"), Text(part, "reference")};
    if (!notes.why.empty() || !notes.fix.empty()) return notes;
  }
  return {};
}

}  // namespace traincheck
