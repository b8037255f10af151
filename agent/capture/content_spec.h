// What hooks/plan.py says of one function, as Python objects:
//
//   None                                    nothing but begin and end
//   (parameters, rest, returns)
//     parameters: [(name, position, detail)] or [(name, position, detail,
//                 default)]; position -1: by keyword only
//     rest:       None or (first position, detail)
//     returns:    None or detail
//     detail:     1 text (of names that are no secrets, in calls and defaults),
//                 2 digest, 4 autograd, added up
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_CONTENT_SPEC_H_
#define TRAINCHECK_AGENT_CAPTURE_CONTENT_SPEC_H_

#include "agent/capture/call_recorder.h"

namespace traincheck::agent {

// From the function's next call on. False: the specification is malformed, an
// exception says how, and nothing has changed.
[[nodiscard]] bool SetContent(PyObject* spec, Function* function);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CONTENT_SPEC_H_
