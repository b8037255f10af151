// Hypotheses of EventContain from one run, in one pass: what was seen inside
// calls (direct children) and inside spans, at the name and at its roles.
//
// General are those at role level whose event is bound to the window's
// objects, or is a backward: an unbound pair of library functions says more
// of the reference's architecture than of training.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_GENERATOR_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_GENERATOR_H_

#include <memory>

#include "invariants/rules/relation.h"

namespace traincheck {

std::unique_ptr<Generator> NewContainGenerator();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_GENERATOR_H_
