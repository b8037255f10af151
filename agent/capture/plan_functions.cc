// set_content, plan_forwards: the capture plan's part of the module.
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "agent/capture/argument_parsing.h"
#include "agent/capture/call_content.h"
#include "agent/capture/content_spec.h"
#include "agent/capture/module_call.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/wrapper.h"

namespace traincheck {
namespace {

PyObject* SetContentFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"wrapper", "content", nullptr};
  PyObject *wrapper, *content;
  if (!Parse(args, kwargs, "OO", names, &wrapper, &content)) return nullptr;
  Function* function = IsWrapper(wrapper)
                           ? reinterpret_cast<Wrapper*>(wrapper)->function
                           : nullptr;
  if (function == nullptr) {
    PyErr_SetString(PyExc_TypeError, "set_content: no wrapper of a function");
    return nullptr;
  }
  return SetContent(content, function) ? None() : nullptr;
}

PyObject* PlanForwardsFunction(PyObject*, PyObject* callback) {
  PlanForwards(callback == Py_None ? nullptr : callback);
  return None();
}

}  // namespace

PyMethodDef kPlanFunctions[] = {
    WithKeywords("set_content", SetContentFunction),
    {"plan_forwards", PlanForwardsFunction, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck
