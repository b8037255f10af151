#include "invariants/relations/verdicts.h"

#include "invariants/relations/words.h"

namespace traincheck {

Verdict NewVerdict(const ProcessFacts& facts, size_t rule, uint32_t object) {
  Verdict verdict;
  verdict.rule = rule;
  verdict.attempt = facts.attempt();
  verdict.unit = uint64_t{facts.number()} << 32 | object;
  verdict.step = static_cast<int64_t>(facts.clock().step());
  return verdict;
}

void MarkViolated(const ProcessFacts& facts, const Call& call,
                  Verdict* verdict) {
  verdict->outcome = Outcome::kViolated;
  if (facts.rank()) verdict->ranks = {*facts.rank()};
  verdict->label = "step " + std::to_string(verdict->step);
  AddOnce(facts.FunctionName(call.function_id), &verdict->finding.apis);
  AddOnce(facts.definitions().Site(call.site), &verdict->finding.sites);
}

void MarkUnknown(const std::string& reason, Verdict* verdict) {
  verdict->outcome = Outcome::kUnknown;
  verdict->reason = reason;
}

}  // namespace traincheck
