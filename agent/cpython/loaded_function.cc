#include "agent/cpython/loaded_function.h"

#include <dlfcn.h>  // for numbers only

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {
namespace {

// _ctypes is what ctypes, and with it torch, stands on.
Ref Call(const char* function, PyObject* first, PyObject* second) {
  const Ref module(PyImport_ImportModule("_ctypes"));
  const Ref callable = module ? Attribute(module.get(), function) : Ref();
  PyObject* const arguments[] = {first, second};
  Ref result(callable && first != nullptr && second != nullptr
                 ? PyObject_Vectorcall(callable.get(), arguments, 2, nullptr)
                 : nullptr);
  DropException();
  return result;
}

}  // namespace

void* LoadedFunction(const char* library, const char* name) {
  const SavedException saved;
  const Ref path(PyUnicode_FromString(library));
  const Ref mode(PyLong_FromLong(RTLD_NOW | RTLD_NOLOAD));
  const Ref handle = Call("dlopen", path.get(), mode.get());
  const Ref symbol(PyUnicode_FromString(name));
  const Ref address = Call("dlsym", handle.get(), symbol.get());
  void* found = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  DropException();
  return found;
}

}  // namespace traincheck::agent
