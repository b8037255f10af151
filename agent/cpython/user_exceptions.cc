#include "agent/cpython/user_exceptions.h"

#include <signal.h>

#include <memory>
#include <vector>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {
namespace {

// The code object of a function, of a method, of what a partial calls or of an
// object's __call__; none if the handler is not written in Python. Frames are
// compared by their code, because a frame does not know the object that was
// called.
Ref CodeOf(PyObject* handler) {
  if (Ref code = Attribute(handler, "__code__")) return code;
  for (const char* inner : {"__func__", "func"}) {
    const Ref function = Attribute(handler, inner);
    if (function) return Attribute(function.get(), "__code__");
  }
  const Ref call =
      Attribute(reinterpret_cast<PyObject*>(Py_TYPE(handler)), "__call__");
  return call ? Attribute(call.get(), "__code__") : Ref();
}

// Handlers are looked up for each exception, because programs install and
// remove them at any time. Exceptions are rare enough for that.
std::vector<Ref> HandlerCodes() {
  std::vector<Ref> codes;
  const Ref module(PyImport_ImportModule("_signal"));
  const Ref get = module ? Attribute(module.get(), "getsignal") : Ref();
  for (int number = 1; get && number < NSIG; ++number) {
    const Ref handler(PyObject_CallFunction(get.get(), "i", number));
    if (!handler) {
      // Not by DropException, which would come here again.
      PyErr_Clear();
      continue;
    }
    if (Ref code = CodeOf(handler.get())) codes.push_back(std::move(code));
  }
  PyErr_Clear();
  return codes;
}

// For Py_AddPendingCall, which runs it in the main thread: destroying the
// SavedException puts the exception back, and -1 makes the interpreter raise
// it.
int RaiseAgain(void* saved) {
  delete static_cast<SavedException*>(saved);
  return -1;
}

}  // namespace

bool IsUsersException(PyObject* type, PyObject* traceback) {
  if (type == nullptr) return false;
  // KeyboardInterrupt, SystemExit and their like are never errors of the agent.
  if (PyErr_GivenExceptionMatches(type, PyExc_Exception) == 0) return true;
  if (traceback == nullptr) return false;  // raised in C
  const std::vector<Ref> handlers = HandlerCodes();
  // A handler runs in a frame of its own on top of the code that it interrupts,
  // so its code is in the traceback.
  Ref entry = Ref::Borrow(traceback);
  while (entry && entry.get() != Py_None && !handlers.empty()) {
    const Ref frame = Attribute(entry.get(), "tb_frame");
    const Ref code = frame ? Attribute(frame.get(), "f_code") : Ref();
    for (const Ref& handler : handlers) {
      if (code && code.get() == handler.get()) return true;
    }
    entry = Attribute(entry.get(), "tb_next");
  }
  return false;
}

void DropException() {
  PyObject* const now = PyErr_Occurred();
  if (now == nullptr) return;
  // An attribute that is missing is the usual answer to a question of the
  // agent. It is cleared before the costly search for handlers.
  if (PyErr_GivenExceptionMatches(now, PyExc_AttributeError) != 0) {
    PyErr_Clear();
    return;
  }
  // On the heap: the interpreter takes it over and raises it later.
  auto exception = std::make_unique<SavedException>();
  if (!IsUsersException(exception->type(), exception->traceback())) {
    exception->Forget();
    return;
  }
  if (Py_AddPendingCall(&RaiseAgain, exception.get()) == 0) {
    exception.release();
    return;
  }
  // The interpreter's queue is full, so the exception itself is lost. A
  // simulated Ctrl-C interrupts the program all the same, as its handler
  // wanted.
  exception->Forget();
  PyErr_SetInterrupt();
}

}  // namespace traincheck::agent
