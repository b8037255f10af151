#include "invariants/relations/event_contain/contain_rules.h"

#include <algorithm>
#include <set>

#include "invariants/facts/variable_state.h"
#include "invariants/rules/words.h"

namespace traincheck {

const FunctionIndex::Concerned& FunctionIndex::Find(const Call& call) {
  const auto found = cache_.find(call.function_id);
  if (found != cache_.end()) return found->second;
  // The definition of the function may still come, behind the call. Not cached,
  // so that the next call looks again.
  static const auto* const kNone = new Concerned;
  if (!call.function) return *kNone;
  // Costs each function the rules once, and each call a look-up.
  Concerned& concerned = cache_[call.function_id];
  for (const ContainRule& rule : *rules_) {
    if (rule.spec.window.Matches(*call.function)) {
      concerned.windows.push_back(&rule);
    }
    const CallInWindow* event = rule.spec.call();
    if (event && event->function.Matches(*call.function)) {
      concerned.events.push_back(&rule);
    }
  }
  return concerned;
}

const ContainRule* FunctionIndex::Rule(size_t index) const {
  for (const ContainRule& rule : *rules_) {
    if (rule.index == index) return &rule;
  }
  return nullptr;
}

void MarkViolated(const ProcessFacts& facts, const Call& window,
                  const ContainRule& rule, Verdict* verdict) {
  MarkViolated(facts, window, verdict);
  verdict->finding.expected = rule.spec.Describe();
}

Verdict CutOff(const ProcessFacts& facts, const ContainRule& rule,
               uint32_t object, ProcessEnd end) {
  Verdict verdict = NewVerdict(facts, rule, object);
  MarkUnknown(WhoseEndWords(facts, end), &verdict);
  return verdict;
}

// Explains a step that changed nothing: the gradients of the model went to
// parameters that no optimizer holds, as after a model was rebuilt behind its
// optimizer.
std::string OrphanWords(const ProcessFacts& facts) {
  std::set<std::string> names;
  for (const auto& [id, state] : facts.variables()) {
    const VariableInfo* info = facts.definitions().Variable(id);
    if (info && state.got_grad() && !facts.ownership().IsHeld(id)) {
      names.insert(info->FullName());
    }
  }
  if (names.empty()) return "";
  return "got gradients and are held by no optimizer: " +
         ListWords({names.begin(), names.end()}, 5);
}

}  // namespace traincheck
