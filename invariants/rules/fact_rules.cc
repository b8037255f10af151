#include "invariants/rules/fact_rules.h"

#include "invariants/facts/fact_value.h"

namespace traincheck {

std::string WantedFact::Describe(const std::string& when) const {
  return "Whenever " + when + ", " + traincheck::Describe(*fact, value) + ".";
}

std::string WantedFact::Expected() const {
  return traincheck::Describe(*fact, value);
}

std::string UnknownWords(const Fact& fact, const ProcessFacts& facts) {
  if (!facts.recorded().whole()) return facts.not_sampled();
  return std::string(fact.name) + " is not known on " + facts.Name() +
         ": it is unknown " + fact.unknown;
}

}  // namespace traincheck
