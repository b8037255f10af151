// Hypotheses of APISequence: pairs of stations (sequence_spec.h) of which one
// was always first, from the first calls of each window. At most 32 stations a
// window: a loop has fewer.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_GENERATOR_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_GENERATOR_H_

#include <memory>

#include "invariants/rules/relation.h"

namespace traincheck {

std::unique_ptr<Generator> NewSequenceGenerator();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_API_SEQUENCE_SEQUENCE_GENERATOR_H_
