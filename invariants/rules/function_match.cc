#include "invariants/rules/function_match.h"

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

struct CategoryWords {
  const char* category;
  const char* called;
};

// Categories that have words of their own; others are described by their name.
constexpr CategoryWords kCategoryWords[] = {
    {"backward", "a backward runs"},
    {"forward", "a module is called"},
    {"load_state_dict", "a state is loaded"},
    {"loader_iter", "a loader begins a pass"},
    {"loader_next", "a loader gives a batch"},
    {"optimizer_step", "an optimizer steps"},
};

}  // namespace

bool FunctionMatch::Matches(const FunctionInfo& function) const {
  switch (level) {
    case Level::kName:
      return function.name == text;
    case Level::kRole:
      // A role is the name of a base class's method, so that method itself has
      // it too.
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

std::string FunctionMatch::DescribeCalled() const {
  if (level != Level::kCategory) return text + " is called";
  for (const CategoryWords& words : kCategoryWords) {
    if (text == words.category) return words.called;
  }
  return Describe() + " happens";
}

bool FunctionMatch::IsGeneral() const {
  // Every program has torch's functions; those of the user and of other
  // libraries need not be there in another program.
  return level == Level::kCategory || absl::StartsWith(text, "torch.");
}

nlohmann::json ToJson(const FunctionMatch& match) {
  for (const LevelName& level : kLevels) {
    if (level.level == match.level) return {{level.name, match.text}};
  }
  return nullptr;
}

absl::StatusOr<FunctionMatch> FunctionMatchFromJson(const nlohmann::json& json,
                                                    const std::string& path) {
  FunctionMatch match;
  JsonReader reader(json, path);
  bool found = false;
  for (const LevelName& level : kLevels) {
    // One of them counts. The reader refuses what is left over.
    if (!reader.Has(level.name) || found) continue;
    match.level = level.level;
    match.text = reader.String(level.name);
    found = true;
  }
  if (!found || match.text.empty()) {
    return absl::InvalidArgumentError(path +
                                      ": neither name, role nor category");
  }
  return reader.Finish(match);
}

FunctionMatch ReadFunctionMatch(JsonReader* parent, const char* key) {
  const nlohmann::json& json = parent->Object(key);
  // The parent has noted that it is missing or of another type.
  if (!json.is_object()) return {};
  const auto match = FunctionMatchFromJson(json, parent->PathOf(key));
  parent->Adopt(match.status());
  return match.value_or(FunctionMatch());
}

// Roles go from narrow to general: the last is the method of the most general
// base class, which programs of all kinds share.
FunctionMatch Broadest(const FunctionInfo& function) {
  if (function.roles.empty()) return {Level::kName, function.name};
  return {Level::kRole, function.roles.back()};
}

void AddCalls(const FunctionMatch& match, CaptureNeeds* needs) {
  if (match.level == Level::kCategory) {
    needs->CallsOfCategory(match.text);
  } else {
    needs->Calls(match.text);
  }
}

}  // namespace traincheck
