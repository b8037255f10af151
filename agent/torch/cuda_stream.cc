#include "agent/torch/cuda_stream.h"

#include <cstdint>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {
namespace {

// torch._C._cuda_getCurrentRawStream, which torch's own compiler uses. Kept for
// the life of the process. Null: there is none.
PyObject* FindFunction() {
  PyObject* module = PyDict_GetItemString(PyImport_GetModuleDict(), "torch._C");
  if (module == nullptr) return nullptr;
  return Attribute(module, "_cuda_getCurrentRawStream").Release();
}

}  // namespace

// Kernels are launched on the program's stream, so that they are ordered behind
// its writes. The function is private to torch; if it is missing, device
// digests are off.
std::optional<void*> CurrentCudaStream(int device) {
  static PyObject* const function = FindFunction();
  if (function == nullptr) return std::nullopt;
  const Ref number(PyLong_FromLong(device));
  PyObject* const arguments[] = {number.get()};
  const Ref stream(PyObject_Vectorcall(function, arguments, 1, nullptr));
  const unsigned long long address =
      stream ? PyLong_AsUnsignedLongLong(stream.get()) : 0;
  if (PyErr_Occurred() != nullptr) {
    DropException();
    return std::nullopt;
  }
  return reinterpret_cast<void*>(static_cast<uintptr_t>(address));
}

}  // namespace traincheck::agent
