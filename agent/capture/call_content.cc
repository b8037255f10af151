#include "agent/capture/call_content.h"

#include <optional>
#include <string>

#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// The place of `name` among the keywords of a call; -1: it is not one of them.
// Names in code are interned, so comparing addresses finds nearly all of them.
Py_ssize_t FindKeyword(PyObject* names, Py_ssize_t count, PyObject* name) {
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyTuple_GetItem(names, i) == name) return i;
  }
  for (Py_ssize_t i = 0; i < count; ++i) {
    if (PyUnicode_Compare(PyTuple_GetItem(names, i), name) == 0) return i;
  }
  return -1;
}

bool IsParameter(const CallContent& content, PyObject* name) {
  for (const CallContent::Parameter& parameter : content.parameters) {
    if (PyUnicode_Compare(parameter.name.get(), name) == 0) return true;
  }
  return false;
}

}  // namespace

// An argument has the number of its parameter, however it was passed, so that
// one that was not given leaves a gap and moves no other.
void CallContent::WriteArguments(const CallArguments& arguments,
                                 FieldWriter* out,
                                 Definitions* definitions) const {
  std::optional<TorchApi::WithoutOverrides> direct;
  // It costs time and is needed only where attributes of tensors are read.
  if (reads_attributes) direct.emplace();
  ValueWriter values(out, definitions);
  const Py_ssize_t positional = VectorcallArgumentCount(arguments.nargsf);
  const Py_ssize_t named =
      arguments.names == nullptr ? 0 : PyTuple_Size(arguments.names);
  for (size_t i = 0; i < parameters.size(); ++i) {
    const Parameter& parameter = parameters[i];
    PyObject* value = nullptr;
    if (parameter.position >= 0 && parameter.position < positional) {
      // A positional argument goes before a keyword, as in the call itself;
      // both for one parameter would be the program's error, which the function
      // raises.
      value = arguments.values[parameter.position];
    } else if (named > 0) {
      const Py_ssize_t at =
          FindKeyword(arguments.names, named, parameter.name.get());
      if (at >= 0) value = arguments.values[positional + at];
    }
    // What does not fit ends the list: the record then says that its content
    // was cut.
    if (value == nullptr) continue;  // the default holds
    if (!values.Write(Field::kArgument, i, value, parameter.detail)) return;
  }
  if (rest < 0) return;
  // What *args took. Names such as "args[0]" keep apart what has no parameter.
  for (Py_ssize_t i = rest; i < positional; ++i) {
    if (!values.WriteNamed("args[" + std::to_string(i - rest) + "]",
                           arguments.values[i], rest_detail)) {
      return;
    }
  }
  for (Py_ssize_t i = 0; i < named; ++i) {
    PyObject* name = PyTuple_GetItem(arguments.names, i);
    if (IsParameter(*this, name)) continue;
    // No specification has seen this name, so a secret's is found only here.
    ValueDetail detail = rest_detail;
    detail.text = detail.text && !IsSecretName(Utf8(name));
    if (!values.WriteNamed(Utf8(name), arguments.values[positional + i],
                           detail)) {
      return;
    }
  }
}

void CallContent::WriteReturn(PyObject* result, FieldWriter* out,
                              Definitions* definitions) const {
  std::optional<TorchApi::WithoutOverrides> direct;
  if (reads_attributes) direct.emplace();
  ValueWriter(out, definitions).Write(Field::kReturn, 0, result, return_detail);
}

}  // namespace traincheck::agent
