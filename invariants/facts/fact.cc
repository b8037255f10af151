#include "invariants/facts/fact.h"

namespace traincheck {

const Fact* FindFact(const std::string& name) {
  // Rules are parsed once, so a walk over the tables is enough; nobody looks
  // facts up by name while events are judged.
  for (const auto* table : {&CallFacts(), &OptimizerFacts(), &LoaderFacts(),
                            &VariableFacts(), &ObservedFacts()}) {
    for (const Fact& fact : *table) {
      if (name == fact.name) return &fact;
    }
  }
  return nullptr;
}

}  // namespace traincheck
