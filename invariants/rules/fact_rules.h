// What rules that ask for a value of a fact have in common.
//
// Threads: pure functions.
#ifndef TRAINCHECK_INVARIANTS_RULES_FACT_RULES_H_
#define TRAINCHECK_INVARIANTS_RULES_FACT_RULES_H_

#include <string>

#include "invariants/facts/fact.h"
#include "nlohmann/json.hpp"

namespace traincheck {

// A fact and the value that a rule asks for.
struct WantedFact {
  const Fact* fact = nullptr;
  FactValue value;

  // "Whenever X, the stage is \"init\".", "Whenever X, gradients are disabled."
  std::string Describe(const std::string& when) const;
  // "the stage is \"init\""
  std::string Expected() const;
};

// What people are told where the fact is not known.
std::string UnknownWords(const Fact& fact, const ProcessFacts& facts);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RULES_FACT_RULES_H_
