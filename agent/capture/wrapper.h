// The callable that stands where a torch function stood. It records begin and
// end of each call and passes everything else through: it binds as a method,
// shows the function's name, signature and documentation, pickles as it,
// compares equal to it and takes attributes.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_WRAPPER_H_
#define TRAINCHECK_AGENT_CAPTURE_WRAPPER_H_

#include "agent/capture/call_recorder.h"
#include "agent/capture/hook_calls.h"
#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

struct Wrapper {
  PyObject_HEAD TraincheckVectorcall vectorcall;
  PyObject* fn;
  PyObject* attributes;
  PyObject* weak_references;
  Hooks hooks;
  Function* function;  // owned; null for Module.__call__, see module_call.h
};

// Makes the types: one for functions that become methods of objects whose
// class has them, one for those that do not (C functions). False: a Python
// exception is set.
[[nodiscard]] bool ReadyWrapperType();

// A new wrapper around fn, which calls `vectorcall`; takes over `function`.
// Null with an exception set on failure.
PyObject* NewWrapper(PyObject* fn, TraincheckVectorcall vectorcall,
                     Function* function, const Hooks& hooks);

// The vectorcall of all functions but Module.__call__.
PyObject* CallRecorded(PyObject* self, PyObject* const* arguments,
                       size_t nargsf, PyObject* names);

bool IsWrapper(PyObject* value);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_WRAPPER_H_
