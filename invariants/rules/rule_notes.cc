#include "invariants/rules/rule_notes.h"

namespace traincheck {
namespace {

std::string Text(const nlohmann::json& origin, const char* key) {
  const auto found = origin.find(key);
  if (found == origin.end() || !found->is_string()) return "";
  return found->get<std::string>();
}

std::vector<std::string> Texts(const nlohmann::json& origin, const char* key) {
  std::vector<std::string> texts;
  const auto found = origin.find(key);
  if (found == origin.end() || !found->is_array()) return texts;
  for (const nlohmann::json& text : *found) {
    if (text.is_string()) texts.push_back(text.get<std::string>());
  }
  return texts;
}

RuleNotes NotesIn(const nlohmann::json& origin) {
  if (!origin.is_object()) return {};
  return {.headline = Text(origin, "headline"),
          .why = Text(origin, "why"),
          .fix = Text(origin, "fix"),
          .reference = Text(origin, "reference"),
          .brings = Texts(origin, "brings"),
          .advice = Text(origin, "grade") == "advice"};
}

bool HasWords(const RuleNotes& notes) {
  return !notes.why.empty() || !notes.fix.empty();
}

}  // namespace

RuleNotes NotesOf(const nlohmann::json& origin) {
  RuleNotes notes = NotesIn(origin);
  // Only a merged rule has notes in its parts.
  if (HasWords(notes) || !origin.is_object()) return notes;
  const auto of = origin.find("of");
  if (of == origin.end() || !of->is_array()) return notes;
  for (const nlohmann::json& part : *of) {
    // A set that was merged may be merged again. Documents nest 32 times at
    // most when they are read, which bounds this.
    RuleNotes written = NotesOf(part);
    if (!HasWords(written) && !written.advice) continue;
    // MakeAdvice writes to the origin of the merged rule, not into its parts.
    written.advice |= notes.advice;
    return written;
  }
  return notes;
}

void MakeAdvice(nlohmann::json* origin) {
  // A rule without an origin has null here.
  if (!origin->is_object()) *origin = nlohmann::json::object();
  (*origin)["grade"] = "advice";
}

}  // namespace traincheck
