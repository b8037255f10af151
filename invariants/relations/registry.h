// The relations of this version, in one list.
//
// Threads: constant.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_REGISTRY_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_REGISTRY_H_

#include <string>
#include <vector>

#include "invariants/rules/relation.h"

namespace traincheck {

const std::vector<const Relation*>& Relations();
// Null: no relation of this version.
const Relation* FindRelation(const std::string& name);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_REGISTRY_H_
