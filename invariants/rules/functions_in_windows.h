// Which rules a function concerns: those on calls of it, and those whose
// windows its calls are.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_FUNCTIONS_IN_WINDOWS_H_
#define TRAINCHECK_INVARIANTS_RULES_FUNCTIONS_IN_WINDOWS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "invariants/trace/events.h"

namespace traincheck {

// Rule has spec.function, a FunctionMatch, and spec.Window(), a pointer to one
// or null.
template <typename Rule>
class FunctionsInWindows {
 public:
  // Places in the list of rules.
  struct Concerned {
    std::vector<size_t> inner;
    std::vector<size_t> windows;
  };

  // `rules` must outlive this object and not change.
  explicit FunctionsInWindows(const std::vector<Rule>* rules) : rules_(rules) {}

  const Concerned& Of(const Call& call) {
    static const auto* const kNone = new Concerned;
    // Its definition may still come, behind the call.
    if (!call.function) return *kNone;
    const auto [found, added] = known_.try_emplace(call.function_id);
    if (!added) return found->second;
    for (size_t place = 0; place < rules_->size(); ++place) {
      const auto& spec = (*rules_)[place].spec;
      if (spec.function.Matches(*call.function)) {
        found->second.inner.push_back(place);
      }
      if (spec.Window() && spec.Window()->Matches(*call.function)) {
        found->second.windows.push_back(place);
      }
    }
    return found->second;
  }

  void OnDefinition(RecordType type, uint32_t id) {
    if (type == RecordType::kFunctionDef) known_.erase(id);
  }

 private:
  const std::vector<Rule>* const rules_;
  std::unordered_map<uint32_t, Concerned> known_;  // by function
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_FUNCTIONS_IN_WINDOWS_H_
