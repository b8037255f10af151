// Hypotheses of CallCount.
//
// Per step: functions that nothing encloses, called as often in each step, or
// not at all in some. Per call: what a module calls directly, twice and more,
// as often each time; that it calls it at all is for EventContain to say. A
// count is a habit of the program: all are the experiment's.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_GENERATOR_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_GENERATOR_H_

#include <memory>

#include "invariants/rules/relation.h"

namespace traincheck {

std::unique_ptr<Generator> NewCountGenerator();

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_CALL_COUNT_COUNT_GENERATOR_H_
