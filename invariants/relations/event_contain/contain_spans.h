// EventContain, spans with a call: between one step of an optimizer and the
// end of its next, a call bound to its objects happens. Judged when the step
// ends.
//
// A gradient clear is asked for from the second span on, where a backward gave
// some held parameter a gradient: before the first backward there is nothing
// to clear, and who copies gradients by hand does not add to them. A backward
// is asked for where the step changed something. A call of a wrapper is asked
// for only where the parameters have one of that class.
#ifndef TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPANS_H_
#define TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPANS_H_

#include "invariants/facts/ownership.h"
#include "invariants/relations/event_contain/contain_spec.h"
#include "invariants/rules/relation.h"

namespace traincheck {

const Relation* ContainSpans();

// Does an object belong to the optimizer in this way? Unknown where the object
// is 0 or the optimizer null.
Tri IsBoundToOptimizer(const ProcessFacts& facts, const Optimizer* optimizer,
                       uint32_t object, Binding binding);

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_RELATIONS_EVENT_CONTAIN_CONTAIN_SPANS_H_
