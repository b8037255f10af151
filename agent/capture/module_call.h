// torch.nn.Module.__call__, recorded as "<class>.forward" of the module's own
// class.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_MODULE_CALL_H_
#define TRAINCHECK_AGENT_CAPTURE_MODULE_CALL_H_

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

// The vectorcall of a Wrapper around Module.__call__. Its hooks run for calls
// that no other module call encloses on this thread.
PyObject* CallModule(PyObject* self, PyObject* const* arguments, size_t nargsf,
                     PyObject* names);

// From now on `callback`(class) says what the records of its forward tell, as
// content_spec.h describes; asked once a class, at its next call. Null: they
// tell nothing.
void PlanForwards(PyObject* callback);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_MODULE_CALL_H_
