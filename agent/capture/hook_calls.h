// Runs the Python hooks around a wrapped call. What a hook raises is logged
// once and forgotten, except what is not an Exception: a
// KeyboardInterrupt that happens to arrive in a hook is the user's.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_HOOK_CALLS_H_
#define TRAINCHECK_AGENT_CAPTURE_HOOK_CALLS_H_

#include <cstddef>
#include <string>

#include "agent/capture/call_content.h"
#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// Borrowed where they are passed, owned where they are kept; null: none.
struct Hooks {
  PyObject* before = nullptr;  // (args, kwargs) -> token
  PyObject* after = nullptr;   // (token, args, kwargs, result, exception)
  bool outermost_only = true;

  bool any() const { return before != nullptr || after != nullptr; }
};

// before, fn, after. Result and exception are fn's.
PyObject* CallWithHooks(PyObject* fn, const CallArguments& arguments,
                        const Hooks& hooks, const std::string& name);

// callback(argument) of ours, as a hook runs. None without an exception if it
// failed; a KeyboardInterrupt that arrived in it is set again when it can be.
Ref AskHook(PyObject* callback, PyObject* argument, const std::string& name);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_HOOK_CALLS_H_
