#include "agent/cpython/loaded_function.h"

#include <dlfcn.h>  // for numbers only

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {
namespace {

// The core calls _ctypes directly, because the module ctypes, and with it
// torch, is built on it: where torch runs, it is there. An exception is
// dropped, because the caller treats every failure as "not found".
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
  // A caller may be on the way out of the user's code with an exception, which
  // the calls below would replace.
  const SavedException saved;
  const Ref path(PyUnicode_FromString(library));
  // RTLD_NOLOAD: only a library that torch has loaded already counts. Binding
  // must not load one that the program does not use.
  const Ref mode(PyLong_FromLong(RTLD_NOW | RTLD_NOLOAD));
  const Ref handle = Call("dlopen", path.get(), mode.get());
  const Ref symbol(PyUnicode_FromString(name));
  const Ref address = Call("dlsym", handle.get(), symbol.get());
  void* found = address ? PyLong_AsVoidPtr(address.get()) : nullptr;
  DropException();
  return found;
}

}  // namespace traincheck::agent
