// APIArg: what the arguments of a function are, over a scope. Its forms:
//
//   constant        one value, where a condition holds      arg_constant.h
//   distinct        no tensor twice in one call of another   arg_distinct.h
//                   function
//   usage           kinds of tensors and settings as in the   arg_usage.h
//                   reference runs
//   equal           the same on all ranks                    arg_equal.h
//   distinct        random generators of the workers of a    arg_workers.h
//     across workers  loader
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_API_ARG_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_API_ARG_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ApiArg();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_ARG_API_ARG_H_
