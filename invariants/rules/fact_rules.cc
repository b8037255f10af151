#include "invariants/rules/fact_rules.h"

#include "invariants/facts/fact_value.h"
#include "invariants/facts/process_facts.h"

namespace traincheck {

std::string WantedFact::Describe(const std::string& when) const {
  return "Whenever " + when + ", " + traincheck::Describe(*fact, value) + ".";
}

std::string WantedFact::Expected() const {
  return traincheck::Describe(*fact, value);
}

std::string UnknownWords(const Fact& fact, const ProcessFacts& facts) {
  // In a step that is not sampled this is why nothing is known, whatever the
  // fact would need besides.
  if (!facts.recorded().whole()) return facts.not_sampled();
  const char* const what = fact.type == FactType::kBool ? " whether " : ": ";
  return "not known on " + facts.Name() + what + fact.text + " (unknown " +
         fact.unknown + ")";
}

}  // namespace traincheck
