// {"is": "usage"}: a function is called as it was in the reference runs:
// README.md.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_USAGE_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_USAGE_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ArgUsage();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_ARG_USAGE_H_
