#include "agent/capture/content_spec.h"

#include <memory>
#include <string>
#include <utility>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {
namespace {

bool Malformed() {
  // The exception of what failed says more and stays.
  if (PyErr_Occurred() == nullptr) {
    PyErr_SetString(PyExc_TypeError, "malformed specification of content");
  }
  return false;
}

// The bits of content_spec.h.
ValueDetail AsDetail(long bits) {
  return {.text = (bits & 1) != 0,
          .digest = (bits & 2) != 0,
          .autograd = (bits & 4) != 0};
}

bool ReadDetail(PyObject* value, ValueDetail* detail) {
  const long bits = PyLong_AsLong(value);
  if (PyErr_Occurred() != nullptr) return false;
  *detail = AsDetail(bits);
  return true;
}

// A default as records may show it. A text is kept only if the specification
// wants texts, as in calls; other objects have no value that could be compared.
PlainValue AsPlain(PyObject* value, ValueDetail detail) {
  if (value == Py_None) return nullptr;
  if (value == Py_True || value == Py_False) return value == Py_True;
  if (PyLong_CheckExact(value)) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
    if (overflow == 0) return static_cast<int64_t>(number);
  }
  if (PyFloat_CheckExact(value)) return PyFloat_AsDouble(value);
  if (detail.text && PyUnicode_CheckExact(value)) {
    return std::string(Utf8(value).substr(0, kMaxTextBytes));
  }
  return {};
}

// The row is checked although a hook of the agent's made it: a mistake there
// must be a TypeError and not a crash of the training.
bool ReadParameter(PyObject* row, CallContent* content, FunctionFacts* facts) {
  if (!PyTuple_Check(row) || PyTuple_Size(row) < 3) return false;
  PyObject* name = PyTuple_GetItem(row, 0);
  if (!PyUnicode_Check(name)) return false;
  CallContent::Parameter parameter;
  parameter.name = Ref::Borrow(name);
  parameter.position = PyLong_AsSsize_t(PyTuple_GetItem(row, 1));
  if (PyErr_Occurred() != nullptr ||
      !ReadDetail(PyTuple_GetItem(row, 2), &parameter.detail)) {
    return false;
  }
  ParameterFacts fact;
  fact.name = Utf8(name);
  // Before the default is taken, whose text goes into the definition.
  if (IsSecretName(fact.name)) parameter.detail.text = false;
  if (PyTuple_Size(row) > 3) {
    fact.fallback = AsPlain(PyTuple_GetItem(row, 3), parameter.detail);
  }
  content->parameters.push_back(std::move(parameter));
  facts->parameters.push_back(std::move(fact));
  return true;
}

bool ReadParameters(PyObject* rows, CallContent* content,
                    FunctionFacts* facts) {
  if (!PyList_Check(rows)) return false;
  for (Py_ssize_t i = 0; i < PyList_Size(rows); ++i) {
    if (!ReadParameter(PyList_GetItem(rows, i), content, facts)) return false;
  }
  return true;
}

// `rest` begins behind the last positional parameter.
bool ReadRest(PyObject* rest, CallContent* content) {
  if (rest == Py_None) return true;
  if (!PyTuple_Check(rest) || PyTuple_Size(rest) != 2) return false;
  content->rest = PyLong_AsSsize_t(PyTuple_GetItem(rest, 0));
  return PyErr_Occurred() == nullptr &&
         ReadDetail(PyTuple_GetItem(rest, 1), &content->rest_detail);
}

bool ReadReturns(PyObject* returns, CallContent* content) {
  if (returns == Py_None) return true;
  content->returns = true;
  return ReadDetail(returns, &content->return_detail);
}

bool ReadsAttributes(const CallContent& content) {
  const auto reads = [](ValueDetail detail) {
    return detail.digest || detail.autograd;
  };
  for (const CallContent::Parameter& parameter : content.parameters) {
    if (reads(parameter.detail)) return true;
  }
  return reads(content.rest_detail) || reads(content.return_detail);
}

}  // namespace

// Each change of the specification defines the function anew under another
// number, so that a record always refers to the list of parameters that it was
// written with.
bool SetContent(PyObject* spec, Function* function) {
  // Into copies: a specification that is malformed at its end changes nothing.
  FunctionFacts facts = function->facts;
  facts.parameters.clear();
  facts.tells_return = false;
  std::unique_ptr<CallContent> content;
  if (spec != Py_None) {
    if (!PyTuple_Check(spec) || PyTuple_Size(spec) != 3) return Malformed();
    content = std::make_unique<CallContent>();
    if (!ReadParameters(PyTuple_GetItem(spec, 0), content.get(), &facts) ||
        !ReadRest(PyTuple_GetItem(spec, 1), content.get()) ||
        !ReadReturns(PyTuple_GetItem(spec, 2), content.get())) {
      return Malformed();
    }
    // Known beforehand: each call decides by it whether it switches overrides
    // of tensors off.
    content->reads_attributes = ReadsAttributes(*content);
    facts.tells_return = content->returns;
  }
  // Calls had no content before and have none now: another definition would
  // only give the function another number.
  if (function->content == nullptr && content == nullptr) return true;
  function->facts = std::move(facts);
  function->content = std::move(content);
  function->generation = 0;  // defined anew at the next call
  return true;
}

}  // namespace traincheck::agent
