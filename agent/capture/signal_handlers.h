// Exceptions that the user's signal handlers raise (a TimeoutError from
// SIGALRM, say) come up wherever the interpreter happens to be, in a hook of
// ours too. They are the user's and have to arrive.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_SIGNAL_HANDLERS_H_
#define TRAINCHECK_AGENT_CAPTURE_SIGNAL_HANDLERS_H_

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// Does a handler that is installed now stand in `traceback` (may be null)?
// Leaves no exception.
bool PassedSignalHandler(PyObject* traceback);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_SIGNAL_HANDLERS_H_
