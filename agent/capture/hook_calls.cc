#include "agent/capture/hook_calls.h"

#include "agent/capture/device_states.h"
#include "agent/capture/events.h"
#include "agent/capture/log.h"
#include "agent/capture/own_time.h"
#include "agent/capture/process_recorder.h"

namespace traincheck::agent {
namespace {

// The scope of a hook: what it calls is not recorded, and its time counts as
// the agent's.
class InHook {
 public:
  InHook() {
    ProcessRecorder* process = ProcessRecorder::GetIfMade();
    if (t_thread == nullptr || process == nullptr) return;
    t_thread->set_in_hook(true);
    process->TendChild();
    // Hooks run at roots and steps: often enough to write what devices have
    // computed, and never within an inner call.
    DeviceStates::Get().Poll();
  }
  ~InHook() {  // another recorder if the hook forked
    if (t_thread != nullptr) t_thread->set_in_hook(false);
  }
  InHook(const InHook&) = delete;
  InHook& operator=(const InHook&) = delete;

 private:
  const OwnTime time_;
};

// Hooks are Python functions of (args, kwargs). The tuple and the dict are made
// for them: a hook cannot put another argument into the call.
Ref PositionalTuple(const CallArguments& arguments) {
  const Py_ssize_t count = VectorcallArgumentCount(arguments.nargsf);
  Ref tuple(PyTuple_New(count));
  for (Py_ssize_t i = 0; tuple && i < count; ++i) {
    Py_INCREF(arguments.values[i]);
    PyTuple_SetItem(tuple.get(), i, arguments.values[i]);
  }
  return tuple;
}

Ref KeywordDict(const CallArguments& arguments) {
  const Py_ssize_t count = VectorcallArgumentCount(arguments.nargsf);
  Ref dict(PyDict_New());
  const Py_ssize_t named =
      arguments.names == nullptr ? 0 : PyTuple_Size(arguments.names);
  for (Py_ssize_t i = 0; dict && i < named; ++i) {
    if (PyDict_SetItem(dict.get(), PyTuple_GetItem(arguments.names, i),
                       arguments.values[count + i]) != 0) {
      return Ref();
    }
  }
  return dict;
}

// Clears what a hook raised and reports it once. False: it is an exception of
// the user's and stays set.
bool Swallow(const std::string& name) {
  if (PyErr_Occurred() == nullptr) return true;
  SavedException exception;
  if (IsUsersException(exception.type(), exception.traceback())) return false;
  Ref text;
  if (PyObject* value = exception.Normalized()) {
    text = Ref(PyObject_Str(value));
    DropException();
  }
  LogOnce("hook " + name, "a hook of " + name + " failed (" +
                              QualifiedTypeName(exception.type()) + ": " +
                              std::string(Utf8(text.get())) + ")");
  // The record says, as sight.py does, that what this hook looks at escapes the
  // agent: rules that need it are unknown from here on.
  RecordScalar(0, StatePoint::kConstruction, 0, "sight:limit failed", 1);
  exception.Forget();
  return true;
}

// False: an exception of the user's is set.
bool RunBefore(const Hooks& hooks, PyObject* positional, PyObject* keywords,
               const std::string& name, Ref* token) {
  if (hooks.before == nullptr) return true;
  const InHook in_hook;
  PyObject* const arguments[] = {positional, keywords};
  *token = Ref(PyObject_Vectorcall(hooks.before, arguments, 2, nullptr));
  return Swallow(name);
}

bool RunAfter(const Hooks& hooks, PyObject* const* arguments,
              const std::string& name) {
  const InHook in_hook;
  const Ref done(PyObject_Vectorcall(hooks.after, arguments, 5, nullptr));
  return Swallow(name);
}

// `result` is taken over and given back, unless an exception of the user's that
// came up in the hook takes its place.
PyObject* After(const Hooks& hooks, PyObject* (&arguments)[5], PyObject* result,
                const std::string& name) {
  if (hooks.after == nullptr) return result;
  if (result != nullptr) {
    arguments[3] = result;
    if (RunAfter(hooks, arguments, name)) return result;
    Py_DECREF(result);
    return nullptr;
  }
  // The call has raised: the hook sees the exception, and the user gets it back
  // afterwards.
  SavedException raised;
  arguments[4] = raised.Normalized();
  if (arguments[4] == nullptr) arguments[4] = Py_None;
  // The user's own exception is already on its way: it stays.
  if (!RunAfter(hooks, arguments, name)) DropException();
  return nullptr;
}

}  // namespace

// For callbacks that are not around a call.
Ref AskHook(PyObject* callback, PyObject* argument, const std::string& name) {
  const InHook in_hook;
  Ref answer(PyObject_Vectorcall(callback, &argument, 1, nullptr));
  if (Swallow(name)) return answer;
  DropException();  // the call that is about to begin cannot raise it
  return Ref();
}

PyObject* CallWithHooks(PyObject* fn, const CallArguments& call,
                        const Hooks& hooks, const std::string& name) {
  // Made once for both hooks: what one has seen is what the other sees.
  const Ref positional = PositionalTuple(call);
  const Ref keywords = KeywordDict(call);
  if (!positional || !keywords) {
    DropException();
    // Without memory for the hooks the user's call goes on alone.
    return PyObject_Vectorcall(fn, call.values, call.nargsf, call.names);
  }
  Ref token;
  // The user's exception came up before the call: the call does not take place,
  // as if the exception had come a moment earlier.
  if (!RunBefore(hooks, positional.get(), keywords.get(), name, &token)) {
    return nullptr;
  }
  PyObject* result =
      PyObject_Vectorcall(fn, call.values, call.nargsf, call.names);
  PyObject* arguments[5] = {token ? token.get() : Py_None, positional.get(),
                            keywords.get(), Py_None, Py_None};
  return After(hooks, arguments, result, name);
}

}  // namespace traincheck::agent
