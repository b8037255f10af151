// Helpers for functions that Python calls. Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_ARGUMENT_PARSING_H_
#define TRAINCHECK_AGENT_CAPTURE_ARGUMENT_PARSING_H_

#include <cstdint>
#include <string>
#include <vector>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// CPython's signatures for such functions differ by flag; the table of methods
// has one type for all.
using KeywordFunction = PyObject* (*)(PyObject*, PyObject*, PyObject*);
inline PyMethodDef WithKeywords(const char* name, KeywordFunction function) {
  return {name,
          reinterpret_cast<PyCFunction>(reinterpret_cast<void*>(function)),
          METH_VARARGS | METH_KEYWORDS, nullptr};
}

// PyArg_ParseTupleAndKeywords with names as a constant array.
template <typename... Out>
bool Parse(PyObject* args, PyObject* kwargs, const char* format,
           const char* const* names, Out... out) {
  return PyArg_ParseTupleAndKeywords(args, kwargs, format,
                                     const_cast<char**>(names), out...) != 0;
}

inline PyObject* None() {
  Py_INCREF(Py_None);
  return Py_None;
}

// A sequence of int. False: an exception is set.
inline bool Numbers(PyObject* sequence, std::vector<uint32_t>* out) {
  const Py_ssize_t size = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    out->push_back(static_cast<uint32_t>(PyLong_AsUnsignedLong(item.get())));
    if (PyErr_Occurred() != nullptr) return false;
  }
  return size >= 0;
}

// A sequence of str. False: an exception is set.
inline bool Texts(PyObject* sequence, std::vector<std::string>* out) {
  const Py_ssize_t size = PySequence_Size(sequence);
  for (Py_ssize_t i = 0; i < size; ++i) {
    const Ref item(PySequence_GetItem(sequence, i));
    if (!item) return false;
    out->emplace_back(Utf8(item.get()));
  }
  return size >= 0;
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_ARGUMENT_PARSING_H_
