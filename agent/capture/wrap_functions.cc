#include <memory>

#include "agent/capture/argument_parsing.h"
#include "agent/capture/module_call.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/wrapper.h"

namespace traincheck::agent {
namespace {

// None means no hook.
PyObject* HookOrNull(PyObject* value) {
  return value == Py_None ? nullptr : value;
}

// The hooks call this once for each function that they wrap, at the start.
PyObject* Wrap(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {
      "fn",    "name",           "category", "roles", "before",
      "after", "outermost_only", "detail",   nullptr};
  PyObject *fn, *roles = nullptr, *before = Py_None, *after = Py_None;
  const char *name, *category;
  int outermost_only = 1, detail = 0;
  if (!Parse(args, kwargs, "Oss|OOOpp", names, &fn, &name, &category, &roles,
             &before, &after, &outermost_only, &detail)) {
    return nullptr;
  }
  auto function = std::make_unique<Function>();
  function->facts.name = name;
  function->facts.category = category;
  function->category_number = CategoryNumber(category);
  if (roles != nullptr && !Texts(roles, &function->facts.roles)) return nullptr;
  function->detail = detail != 0;
  return NewWrapper(
      fn, CallRecorded, function.release(),
      {HookOrNull(before), HookOrNull(after), outermost_only != 0});
}

PyObject* WrapModuleCall(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"fn", "before_root", "after_root",
                                      nullptr};
  PyObject *fn, *before = Py_None, *after = Py_None;
  if (!Parse(args, kwargs, "O|OO", names, &fn, &before, &after)) {
    return nullptr;
  }
  return NewWrapper(fn, CallModule, nullptr,
                    {HookOrNull(before), HookOrNull(after), true});
}

PyObject* IsWrapperFunction(PyObject*, PyObject* value) {
  return PyBool_FromLong(IsWrapper(value));
}

// Hooks ask it before they swallow an exception in Python.
PyObject* IsUsers(PyObject*, PyObject* error) {
  const Ref traceback = Attribute(error, "__traceback__");
  return PyBool_FromLong(IsUsersException(
      reinterpret_cast<PyObject*>(Py_TYPE(error)), traceback.get()));
}

PyObject* TypeModified(PyObject*, PyObject* type) {
  if (!PyType_Check(type)) {
    PyErr_SetString(PyExc_TypeError, "type_modified() takes a class");
    return nullptr;
  }
  // The interpreter's cache of attributes would still find what stood there
  // before.
  PyType_Modified(reinterpret_cast<PyTypeObject*>(type));
  return None();
}

}  // namespace

PyMethodDef kWrapFunctions[] = {
    WithKeywords("wrap", Wrap),
    WithKeywords("wrap_module_call", WrapModuleCall),
    {"type_modified", TypeModified, METH_O, nullptr},
    {"is_wrapper", IsWrapperFunction, METH_O, nullptr},
    {"is_users", IsUsers, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
