#include "agent/capture/call_values.h"

#include <algorithm>
#include <cctype>
#include <string>

#include "agent/capture/object_table.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/tensor_field.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// A record carries this many elements of a container; its length is always
// recorded.
constexpr Py_ssize_t kMaxElements = 8;
// A process that has defined this many different strings defines no further
// texts of values: of these only the length is recorded.
constexpr uint32_t kMaxTexts = 10'000;

bool IsTruth(PyObject* value) { return value == Py_True || value == Py_False; }

// Classes of torch whose text says all: dtype, device, layout, memory_format.
bool IsTorchConstant(PyObject* value) {
  static auto* known = new std::vector<PyTypeObject*>;
  static auto* others = new std::vector<PyTypeObject*>;
  PyTypeObject* type = Py_TYPE(value);
  if (std::find(known->begin(), known->end(), type) != known->end()) {
    return true;
  }
  // Types of the user's may die and others take their addresses: only those
  // that live for ever are remembered.
  if ((PyType_GetFlags(type) & Py_TPFLAGS_HEAPTYPE) != 0) return false;
  if (std::find(others->begin(), others->end(), type) != others->end()) {
    return false;
  }
  const std::string name = QualifiedTypeName(reinterpret_cast<PyObject*>(type));
  const bool constant = name == "torch.dtype" || name == "torch.device" ||
                        name == "torch.layout" || name == "torch.memory_format";
  (constant ? known : others)->push_back(type);
  return constant;
}

}  // namespace

// Errs on the side of leaving out: "monkey" is taken for a secret too.
bool IsSecretName(std::string_view name) {
  std::string lower(name);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* part : {"token", "key", "password", "secret"}) {
    if (lower.find(part) != std::string::npos) return true;
  }
  return false;
}

// Each of the two writes one value with the field that names it, or nothing of
// it.
bool ValueWriter::Write(Field name, uint64_t number, PyObject* value,
                        ValueDetail detail) {
  if (full_) return false;
  const size_t from = out_.position();
  out_.Unsigned(name, number);
  Value(value, detail);
  return Finish(from);
}

bool ValueWriter::WriteNamed(std::string_view name, PyObject* value,
                             ValueDetail detail) {
  if (full_) return false;
  const size_t from = out_.position();
  const uint32_t id = definitions_.ValueName(name);
  nameless_ = nameless_ || id == 0;
  out_.Unsigned(Field::kArgumentName, id);
  Value(value, detail);
  return Finish(from);
}

// Half a value would be misread, so the record goes back to where the value
// began and says that its content is cut.
bool ValueWriter::Finish(size_t from) {
  // A value whose name or class cannot be written is left out as well.
  if (out_.fits() && !nameless_) return true;
  full_ = true;
  out_.Rewind(from);
  out_.Unsigned(Field::kContentCut, 1);
  // Where not even this fits, the value before goes with it: none is half.
  if (!out_.fits()) out_.Rewind(from);
  return false;
}

void ValueWriter::Value(PyObject* value, ValueDetail detail) {
  if (Plain(value, detail)) return;
  if (PyList_CheckExact(value) || PyTuple_Check(value)) {
    Sequence(value, detail);
  } else if (PyDict_Check(value)) {
    Mapping(value, detail);
  } else {
    Type(value);
  }
}

// False: the value is a container or an object of some class. The order is by
// frequency, and bool comes before int, of which it is a subclass.
bool ValueWriter::Plain(PyObject* value, ValueDetail detail) {
  if (TorchApi::IsTensor(value)) {
    Tensor(value, detail);
  } else if (value == Py_None) {
    out_.Unsigned(Field::kValueNone, 0);
    // Before int, of which bool is a subclass.
  } else if (IsTruth(value)) {
    out_.Unsigned(Field::kValueBool, value == Py_True);
  } else if (PyLong_Check(value)) {
    Integer(value);
  } else if (PyFloat_Check(value)) {
    out_.Double(Field::kValueDouble, PyFloat_AsDouble(value));
  } else if (PyUnicode_Check(value)) {
    Text(Utf8(value), value, detail);
  } else if (IsTorchConstant(value)) {
    const Ref text(PyObject_Str(value));
    if (!text) DropException();
    Text(Utf8(text.get()), value, {.text = true});
  } else {
    return false;
  }
  return true;
}

void ValueWriter::Integer(PyObject* value) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
  if (overflow == 0) {
    out_.Signed(Field::kValueSigned, number);
  } else {
    const double large = PyLong_AsDouble(value);
    if (PyErr_Occurred() == nullptr) {
      out_.Double(Field::kValueDouble, large);
      return;
    }
    DropException();  // beyond a double, too: only its class is known
    Type(value);
  }
}

void ValueWriter::Text(std::string_view text, PyObject* value,
                       ValueDetail detail) {
  // A program may make texts without end, and the table of strings only grows.
  if (detail.text && definitions_.strings() < kMaxTexts) {
    const uint32_t id = definitions_.String(text.substr(0, kMaxTextBytes));
    out_.Unsigned(Field::kValueString, id);
    return;
  }
  Type(value);
  out_.Unsigned(Field::kValueLength, text.size());
}

// One field for what a tensor is; the digest of its content is another and only
// on plan.
void ValueWriter::Tensor(PyObject* value, ValueDetail detail) {
  char bytes[kMaxTensorFieldBytes];
  const size_t size = EncodeTensor(value, detail.autograd, bytes);
  out_.Bytes(Field::kValueTensor, {bytes, size});
  if (!detail.digest) return;
  // A tensor that cannot be read here has no digest, and nothing stands for
  // one.
  const std::optional<TensorView> view = TensorView::Of(value);
  if (view.has_value()) {
    out_.Word(Field::kValueDigest, view->Digest().digest);
  }
}

void ValueWriter::Sequence(PyObject* value, ValueDetail detail) {
  const bool tuple = PyTuple_Check(value);
  const Py_ssize_t size = tuple ? PyTuple_Size(value) : PyList_Size(value);
  Type(value);
  out_.Unsigned(Field::kValueLength, static_cast<uint64_t>(size));
  for (Py_ssize_t i = 0; i < std::min(size, kMaxElements); ++i) {
    PyObject* element =
        tuple ? PyTuple_GetItem(value, i) : PyList_GetItem(value, i);
    out_.Unsigned(Field::kElement, static_cast<uint64_t>(i));
    // An element that is a container itself is recorded by its class alone.
    if (!Plain(element, detail)) Type(element);
  }
}

// Keys that are not strings are passed over and count as elements.
void ValueWriter::Mapping(PyObject* value, ValueDetail detail) {
  Type(value);
  out_.Unsigned(Field::kValueLength, static_cast<uint64_t>(PyDict_Size(value)));
  PyObject *key, *element;
  Py_ssize_t at = 0;
  for (Py_ssize_t i = 0;
       i < kMaxElements && PyDict_Next(value, &at, &key, &element); ++i) {
    // The text of any other key might come from code of the user's.
    if (!PyUnicode_Check(key)) continue;
    const std::string_view name = Utf8(key);
    out_.Unsigned(Field::kElementKey,
                  definitions_.strings() < kMaxTexts
                      ? definitions_.String(name.substr(0, kMaxTextBytes))
                      : 0);
    ValueDetail inner = detail;
    inner.text = inner.text && !IsSecretName(name);
    if (!Plain(element, inner)) Type(element);
  }
}

// Which object it is, if the records know it; else its class.
void ValueWriter::Type(PyObject* value) {
  const uint32_t object = ObjectTable::Get().IdOf(value);
  if (object != 0) {
    out_.Unsigned(Field::kValueObject, object);
    return;
  }
  const std::string name =
      QualifiedTypeName(reinterpret_cast<PyObject*>(Py_TYPE(value)));
  const uint32_t id = definitions_.ValueName(name);
  nameless_ = nameless_ || id == 0;
  out_.Unsigned(Field::kValueType, id);
}

}  // namespace traincheck::agent
