#include "invariants/relations/function_match.h"

#include <algorithm>

#include "absl/strings/match.h"

namespace traincheck {

namespace {

struct LevelName {
  Level level;
  const char* name;
};

constexpr LevelName kLevels[] = {
    {Level::kName, "name"},
    {Level::kRole, "role"},
    {Level::kCategory, "category"},
};

}  // namespace

bool FunctionMatch::Matches(const FunctionInfo& function) const {
  switch (level) {
    case Level::kName:
      return function.name == text;
    case Level::kRole:
      return function.name == text ||
             std::find(function.roles.begin(), function.roles.end(), text) !=
                 function.roles.end();
    case Level::kCategory:
      return function.category.text() == text;
  }
  return false;
}

std::string FunctionMatch::Describe() const {
  if (level != Level::kCategory) return text;
  return text == "backward" || text == "zero_grad" ? text
                                                   : "a call of kind " + text;
}

bool FunctionMatch::IsGeneral() const {
  return level == Level::kCategory || absl::StartsWith(text, "torch.");
}

nlohmann::json ToJson(const FunctionMatch& match) {
  for (const LevelName& level : kLevels) {
    if (level.level == match.level) return {{level.name, match.text}};
  }
  return nullptr;
}

FunctionMatch ReadFunctionMatch(JsonReader* parent) {
  FunctionMatch match;
  const nlohmann::json& json = parent->Object("function");
  if (!json.is_object()) return match;
  JsonReader reader(json, parent->PathOf("function"));
  bool found = false;
  for (const LevelName& level : kLevels) {
    if (!reader.Has(level.name) || found) continue;
    match.level = level.level;
    match.text = reader.String(level.name);
    found = true;
  }
  if (!found || match.text.empty()) {
    parent->Fail("function", "neither name, role nor category");
  }
  parent->Adopt(reader.Finish());
  return match;
}

void AddCalls(const FunctionMatch& match, CaptureNeeds* needs) {
  if (match.level == Level::kCategory) {
    needs->CallsOfCategory(match.text);
  } else {
    needs->Calls(match.text);
  }
}

}  // namespace traincheck
