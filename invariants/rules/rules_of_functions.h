// Which rules a function concerns, asked at every call: most concern none.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RULES_RULES_OF_FUNCTIONS_H_
#define TRAINCHECK_INVARIANTS_RULES_RULES_OF_FUNCTIONS_H_

#include <cstdint>
#include <unordered_map>
#include <vector>

#include "invariants/trace/events.h"

namespace traincheck {

// Rule has spec.function, a FunctionMatch.
template <typename Rule>
class RulesOfFunctions {
 public:
  // `rules` must outlive this object and not change.
  explicit RulesOfFunctions(const std::vector<Rule>* rules) : rules_(rules) {}

  const std::vector<const Rule*>& Of(const Call& call) {
    static const auto* const kNone = new std::vector<const Rule*>;
    // Its definition may still come, behind the call.
    if (!call.function) return *kNone;
    const auto [found, added] = known_.try_emplace(call.function_id);
    if (!added) return found->second;
    for (const Rule& rule : *rules_) {
      if (rule.spec.function.Matches(*call.function)) {
        found->second.push_back(&rule);
      }
    }
    return found->second;
  }

  void OnDefinition(RecordType type, uint32_t id) {
    if (type == RecordType::kFunctionDef) known_.erase(id);
  }

 private:
  const std::vector<Rule>* const rules_;
  std::unordered_map<uint32_t, std::vector<const Rule*>> known_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_RULES_OF_FUNCTIONS_H_
