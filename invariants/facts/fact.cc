#include "invariants/facts/fact.h"

namespace traincheck {

const Fact* FindFact(const std::string& name) {
  for (const auto* table : {&CallFacts(), &OptimizerFacts(), &LoaderFacts(),
                            &VariableFacts(), &ObservedFacts()}) {
    for (const Fact& fact : *table) {
      if (name == fact.name) return &fact;
    }
  }
  return nullptr;
}

}  // namespace traincheck
