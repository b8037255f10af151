#include "agent/capture/function_switches.h"

#include <fnmatch.h>

#include <algorithm>

#include "agent/capture/call_recorder.h"

namespace traincheck {
namespace {

bool IsLike(const Function& function, const std::string& pattern) {
  return fnmatch(pattern.c_str(), function.facts.name.c_str(), 0) == 0;
}

}  // namespace

FunctionSwitches& FunctionSwitches::Get() {
  static auto* switches = new FunctionSwitches;
  return *switches;
}

void FunctionSwitches::Add(Function& function) {
  functions_.push_back(&function);
  for (const auto& [pattern, active] : rules_) {
    if (IsLike(function, pattern)) function.active = active;
  }
}

void FunctionSwitches::Remove(const Function& function) {
  std::erase(functions_, &function);
}

size_t FunctionSwitches::Set(const std::string& pattern, bool active) {
  std::erase_if(rules_,
                [&](const auto& rule) { return rule.first == pattern; });
  rules_.emplace_back(pattern, active);
  size_t found = 0;
  for (Function* function : functions_) {
    if (!IsLike(*function, pattern)) continue;
    function->active = active;
    ++found;
  }
  return found;
}

}  // namespace traincheck
