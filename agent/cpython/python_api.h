// Python.h under the limited API of 3.11, so that one binary loads into every
// later CPython, plus the few functions that CPython exports in all versions
// from 3.11 on but declares outside the limited API. They are tested on each
// version that the agent supports.
#ifndef TRAINCHECK_AGENT_CPYTHON_PYTHON_API_H_
#define TRAINCHECK_AGENT_CPYTHON_PYTHON_API_H_

#define PY_SSIZE_T_CLEAN
#define Py_LIMITED_API 0x030b0000
// clang-format off
#include <Python.h>
#include <structmember.h>
// clang-format on

#ifndef Py_TPFLAGS_HAVE_VECTORCALL
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#endif
#ifndef PY_VECTORCALL_ARGUMENTS_OFFSET
#define PY_VECTORCALL_ARGUMENTS_OFFSET (size_t{1} << (8 * sizeof(size_t) - 1))
#endif

extern "C" {
using TraincheckVectorcall = PyObject* (*)(PyObject*, PyObject* const*, size_t,
                                           PyObject*);
PyAPI_FUNC(PyObject*)
    PyObject_Vectorcall(PyObject*, PyObject* const*, size_t, PyObject*);
PyAPI_FUNC(PyObject*)
    PyObject_VectorcallMethod(PyObject*, PyObject* const*, size_t, PyObject*);
PyAPI_FUNC(PyObject*) PyVectorcall_Call(PyObject*, PyObject*, PyObject*);
PyAPI_FUNC(PyObject*) PyMethod_New(PyObject*, PyObject*);
PyAPI_FUNC(PyFrameObject*) PyFrame_GetBack(PyFrameObject*);
PyAPI_FUNC(int) PyFrame_GetLasti(PyFrameObject*);
}

namespace traincheck::agent {

inline Py_ssize_t VectorcallArgumentCount(size_t nargsf) {
  return static_cast<Py_ssize_t>(nargsf & ~PY_VECTORCALL_ARGUMENTS_OFFSET);
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CPYTHON_PYTHON_API_H_
