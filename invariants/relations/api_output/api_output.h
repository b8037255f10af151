// APIOutput: what the result of a function is. Its forms:
//
//   equal    its type or its rows are those of something else  output_equal.h
//   at_most  it grows by no more than an argument says          output_bound.h
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_API_OUTPUT_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_API_OUTPUT_H_

#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ApiOutput();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_OUTPUT_API_OUTPUT_H_
