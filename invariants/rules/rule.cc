#include "invariants/rules/rule.h"

#include "invariants/rules/relation.h"

namespace traincheck {

const char* Rule::relation_name() const { return relation_->name(); }

std::vector<FactValue> Rule::ReadFacts(const FactSubject& subject) const {
  std::vector<FactValue> values;
  for (const Fact* fact : facts_) values.push_back(fact->read(subject));
  return values;
}

}  // namespace traincheck
