#include "invariants/rules/verdicts.h"

#include <utility>

#include "invariants/rules/subjects.h"
#include "invariants/rules/words.h"

namespace traincheck {
namespace {

// A step of an optimizer is about that optimizer, wherever it is called: one
// line may step several.
void AddSubject(const ProcessFacts& facts, const Call& call, Finding* finding) {
  const Optimizer* optimizer = facts.ownership().Find(call.object);
  if (optimizer) {
    return AddOnce(OptimizerSubject(optimizer->ordinal), &finding->subjects);
  }
  const std::string site = facts.definitions().Site(call.site);
  if (site.empty()) return;
  AddOnce(CallSubject(facts.FunctionName(call.function_id), site),
          &finding->subjects);
}

}  // namespace

Verdict NewVerdict(const ProcessFacts& facts, size_t rule, uint32_t object) {
  Verdict verdict;
  verdict.rule = rule;
  verdict.attempt = facts.attempt();
  verdict.process = facts.number();
  // By the number of the process: its rank may become known late, and processes
  // without a group share one.
  verdict.unit = uint64_t{facts.number()} << 32 | object;
  verdict.step = facts.clock().known_step();
  return verdict;
}

std::string StepLabel(const ProcessFacts& facts, const Verdict& verdict) {
  if (verdict.step) return "step " + std::to_string(*verdict.step);
  // Behind missing records the clock has the least that the step can be.
  return "after step " + std::to_string(facts.clock().step());
}

// The callers of a finding are those of its first site, so they change with it.
void PutSiteFirst(const ProcessFacts& facts, uint32_t site, Finding* finding) {
  const std::string line = facts.definitions().Site(site);
  if (line.empty()) return;
  std::vector<std::string> sites = {line};
  for (const std::string& other : finding->sites) AddOnce(other, &sites);
  finding->sites = std::move(sites);
  finding->callers = facts.definitions().CallersOf(site);
}

void AddSite(const ProcessFacts& facts, uint32_t site, Finding* finding) {
  if (finding->sites.empty()) return PutSiteFirst(facts, site, finding);
  AddOnce(facts.definitions().Site(site), &finding->sites);
}

void MarkViolated(const ProcessFacts& facts, const Call& call,
                  Verdict* verdict) {
  verdict->outcome = Outcome::kViolated;
  if (facts.rank()) verdict->ranks = {*facts.rank()};
  verdict->label = StepLabel(facts, *verdict);
  AddOnce(facts.FunctionName(call.function_id), &verdict->finding.apis);
  AddSite(facts, call.site, &verdict->finding);
  AddSubject(facts, call, &verdict->finding);
}

void MarkUnknown(const std::string& reason, Verdict* verdict) {
  verdict->outcome = Outcome::kUnknown;
  verdict->reason = reason;
}

}  // namespace traincheck
