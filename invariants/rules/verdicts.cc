#include "invariants/rules/verdicts.h"

#include "invariants/rules/words.h"

namespace traincheck {

Verdict NewVerdict(const ProcessFacts& facts, size_t rule, uint32_t object) {
  Verdict verdict;
  verdict.rule = rule;
  verdict.attempt = facts.attempt();
  verdict.process = facts.number();
  verdict.unit = uint64_t{facts.number()} << 32 | object;
  verdict.step = facts.clock().known_step();
  return verdict;
}

std::string StepLabel(const ProcessFacts& facts, const Verdict& verdict) {
  if (verdict.step) return "step " + std::to_string(*verdict.step);
  return "after step " + std::to_string(facts.clock().step());
}

void MarkViolated(const ProcessFacts& facts, const Call& call,
                  Verdict* verdict) {
  verdict->outcome = Outcome::kViolated;
  if (facts.rank()) verdict->ranks = {*facts.rank()};
  verdict->label = StepLabel(facts, *verdict);
  AddOnce(facts.FunctionName(call.function_id), &verdict->finding.apis);
  AddOnce(facts.definitions().Site(call.site), &verdict->finding.sites);
}

void MarkUnknown(const std::string& reason, Verdict* verdict) {
  verdict->outcome = Outcome::kUnknown;
  verdict->reason = reason;
}

}  // namespace traincheck
