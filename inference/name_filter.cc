#include "inference/name_filter.h"

#include <fnmatch.h>

#include <algorithm>
#include <set>
#include <string>
#include <vector>

namespace traincheck {

namespace {

using Names = std::vector<std::string>;

// The texts under these keys, at any depth.
void Collect(const nlohmann::json& json, const std::set<std::string>& keys,
             Names* names) {
  for (const auto& item : json.items()) {
    const nlohmann::json& value = item.value();
    if (value.is_structured()) Collect(value, keys, names);
    if (value.is_string() && json.is_object() && keys.count(item.key())) {
      names->push_back(value.get<std::string>());
    }
  }
}

bool FitsOne(const std::string& name, const Names& patterns) {
  return std::any_of(patterns.begin(), patterns.end(),
                     [&name](const std::string& pattern) {
                       return fnmatch(pattern.c_str(), name.c_str(), 0) == 0;
                     });
}

// One excluded name is enough to drop a rule, and one included name to keep it:
// a rule on two functions is kept if one of them is wanted.
bool Passes(const Names& names, const NamePatterns& patterns) {
  // A rule that names nothing of this kind passes: the options say nothing of
  // it.
  bool included = names.empty() || patterns.include.empty();
  for (const std::string& name : names) {
    if (FitsOne(name, patterns.exclude)) return false;
    included |= FitsOne(name, patterns.include);
  }
  return included;
}

}  // namespace

bool IsWanted(const nlohmann::json& parameters,
              const InferenceOptions& options) {
  static const auto* const kFunctions =
      new std::set<std::string>{"name", "role"};
  static const auto* const kVariables =
      new std::set<std::string>{"variable", "a", "b"};
  Names functions;
  Names variables;
  Collect(parameters, *kFunctions, &functions);
  Collect(parameters, *kVariables, &variables);
  return Passes(functions, options.functions) &&
         Passes(variables, options.variables);
}

}  // namespace traincheck
