#include "invariants/relations/registry.h"

#include "invariants/relations/consistent.h"
#include "invariants/relations/event_contain.h"

namespace traincheck {

const std::vector<const Relation*>& Relations() {
  static const auto* const kRelations =
      new std::vector<const Relation*>{Consistent(), EventContain()};
  return *kRelations;
}

const Relation* FindRelation(const std::string& name) {
  for (const Relation* relation : Relations()) {
    if (name == relation->name()) return relation;
  }
  return nullptr;
}

}  // namespace traincheck
