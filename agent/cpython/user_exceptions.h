// Exceptions that the user's signal handlers raise (a TimeoutError from
// SIGALRM, say) come up wherever the interpreter happens to be, in a hook of
// ours and in what our C++ calls, too: PyObject_Str() alone runs handlers.
// They are the user's and have to arrive.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CPYTHON_USER_EXCEPTIONS_H_
#define TRAINCHECK_AGENT_CPYTHON_USER_EXCEPTIONS_H_

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// Did this exception come out of a handler that is installed now, or is it one
// that no `except Exception` catches (KeyboardInterrupt)? Leaves no exception.
// Either may be null.
bool IsUsersException(PyObject* type, PyObject* traceback);

// Clears the exception in flight, if there is one. One of the user's is raised
// again as soon as Python code runs in the main thread, where handlers run.
void DropException();

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CPYTHON_USER_EXCEPTIONS_H_
