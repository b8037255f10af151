#include "invariants/rules/blame.h"

#include <set>
#include <string>

#include "invariants/facts/blamed_calls.h"
#include "invariants/facts/observations.h"
#include "invariants/rules/verdicts.h"
#include "invariants/rules/words.h"
#include "invariants/trace/events.h"

namespace traincheck {
namespace {

// The blamed line goes before the others: the line at which a mistake shows is
// rarely the one that makes it.
void Add(const ProcessFacts& facts, const BlamedCall& call,
         const std::string& what, Finding* finding) {
  const std::string site = facts.definitions().Site(call.site);
  if (site.empty()) return;
  const std::string function = facts.FunctionName(call.function);
  AddOnce(function, &finding->apis);
  finding->evidence.push_back(what + " " + function + " at " + site);
  PutSiteFirst(facts, call.site, finding);
}

// The modules whose mode the fact is about: those of the optimizer, or the one
// that is called and the model around it.
std::set<uint32_t> ModulesOf(const FactSubject& subject) {
  if (const Optimizer* optimizer =
          subject.facts->ownership().Find(subject.optimizer)) {
    return optimizer->modules;
  }
  std::set<uint32_t> modules;
  if (!subject.call) return modules;
  modules.insert(subject.call->object);
  const ObjectInfo* module =
      subject.facts->definitions().Object(subject.call->object);
  // train() and eval() on a root also set the modules below it.
  if (module && module->root != 0) modules.insert(module->root);
  return modules;
}

void BlameSwitch(const FactSubject& subject, Finding* finding) {
  const BlamedCall* last = nullptr;
  for (const uint32_t module : ModulesOf(subject)) {
    const BlamedCall* const one =
        subject.facts->blamed_calls().SwitchOf(module);
    // The later of several switches made the mode what it is.
    if (one && (!last || last->number < one->number)) last = one;
  }
  if (!last) return;
  Add(*subject.facts, *last, "its mode was set last by", finding);
}

void AddLine(const ProcessFacts& facts, uint32_t site, const std::string& what,
             Finding* finding) {
  const std::string text = facts.definitions().Site(site);
  if (text.empty()) return;
  finding->evidence.push_back(what + " at " + text);
  PutSiteFirst(facts, site, finding);
}

// The line that the agent has recorded beside the fact ("NAME.site"); without
// one the finding stays as it is.
void BlameLine(const Fact& fact, const FactSubject& subject,
               const std::string& what, Finding* finding) {
  // The agent writes lines of an optimizer's facts to the optimizer, and all
  // others to the call at which it looked.
  const uint32_t object = fact.of == FactOf::kOptimizer ? subject.optimizer : 0;
  const Observations& observations = subject.facts->observations();
  AddLine(*subject.facts, observations.SiteOf(object, fact.name), what,
          finding);
}

void BlameLoader(const FactSubject& subject, Finding* finding) {
  const uint32_t site = subject.facts->observations().SiteOf(
      subject.loader, Observations::kLoaderMade);
  AddLine(*subject.facts, site, "the loader was made", finding);
}

}  // namespace

void BlameConstruction(const ProcessFacts& facts, uint32_t optimizer,
                       Finding* finding) {
  const BlamedCall* const call = facts.blamed_calls().ConstructionOf(optimizer);
  // Not known where a construction was not recorded: a wrong line is worse than
  // none.
  if (call) Add(facts, *call, "the optimizer was made by", finding);
}

void AddBlame(const Fact& fact, const FactSubject& subject, Finding* finding) {
  switch (fact.blames) {
    case Blamed::kNobody:
      return BlameLine(fact, subject, "it stands", finding);
    case Blamed::kScheduler:
      return BlameLine(fact, subject, "the scheduler was made", finding);
    case Blamed::kSchedulerStep:
      return BlameLine(fact, subject, "the scheduler is stepped", finding);
    case Blamed::kSwitchOfMode:
      return BlameSwitch(subject, finding);
    case Blamed::kConstruction:
      if (fact.of == FactOf::kLoader) return BlameLoader(subject, finding);
      return BlameConstruction(*subject.facts, subject.optimizer, finding);
  }
}

}  // namespace traincheck
