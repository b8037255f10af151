// What the parts of EventContain share: the rules of one part, looked up by
// the functions that open their windows or are their events, and the frame of
// a verdict.
//
// Threads: one object, one thread at a time.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_RULES_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_RULES_H_

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "invariants/relations/event_contain/contain_spec.h"
#include "invariants/rules/process_relation.h"
#include "invariants/rules/recorded_calls.h"
#include "invariants/rules/verdicts.h"

namespace traincheck {

using ContainRule = SpecRule<ContainSpec>;
using ContainRules = std::vector<ContainRule>;
using ContainJudged = JudgedRules<ContainRule>;

// A form whose rules such a part judges. EventContain makes the hypotheses of
// all forms at once (contain_generator.h).
template <typename Part>
using ContainForm = ProcessRelation<ContainSpec, Part>;

// Which rules a function of one process concerns. Small and dense: most
// functions concern none.
class FunctionIndex {
 public:
  struct Concerned {
    std::vector<const ContainRule*> windows;
    std::vector<const ContainRule*> events;
  };

  // `rules` must outlive this object.
  explicit FunctionIndex(const ContainRules* rules) : rules_(rules) {}

  const Concerned& Find(const Call& call);
  // The rule with this index; null: none of these.
  const ContainRule* Rule(size_t index) const;
  // A definition has changed.
  void Forget(uint32_t function) { cache_.erase(function); }

 private:
  const ContainRules* const rules_;
  std::unordered_map<uint32_t, Concerned> cache_;
};

// A verdict of this rule on this process now.
inline Verdict NewVerdict(const ProcessFacts& facts, const ContainRule& rule,
                          uint32_t object) {
  return NewVerdict(facts, rule.index, object);
}
// Fills in what every violation of this relation says.
void MarkViolated(const ProcessFacts& facts, const Call& window,
                  const ContainRule& rule, Verdict* verdict);
// The verdict of a window that was open when its process ended.
Verdict CutOff(const ProcessFacts& facts, const ContainRule& rule,
               uint32_t object, ProcessEnd end);

// Variables with a fresh gradient that no optimizer holds: the evidence when
// an optimizer changes nothing. "" if there are none.
std::string OrphanWords(const ProcessFacts& facts);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_RULES_H_
