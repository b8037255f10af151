// Owned references and saved exceptions. Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CPYTHON_PYTHON_REF_H_
#define TRAINCHECK_AGENT_CPYTHON_PYTHON_REF_H_

#include <string>
#include <string_view>
#include <utility>

#include "agent/cpython/python_api.h"
#include "agent/cpython/user_exceptions.h"

namespace traincheck::agent {

// One strong reference, or none.
class Ref {
 public:
  Ref() = default;
  // Takes over a new reference.
  explicit Ref(PyObject* owned) : object_(owned) {}
  static Ref Borrow(PyObject* object) {
    Py_XINCREF(object);
    return Ref(object);
  }
  Ref(Ref&& other) noexcept : object_(std::exchange(other.object_, nullptr)) {}
  Ref& operator=(Ref&& other) noexcept {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Ref() { Py_XDECREF(object_); }

  PyObject* get() const { return object_; }
  PyObject* Release() { return std::exchange(object_, nullptr); }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// Sets the exception in flight aside and puts it back: what runs in between
// may raise and clear its own.
class SavedException {
 public:
  SavedException() { PyErr_Fetch(&type_, &value_, &traceback_); }
  ~SavedException() { PyErr_Restore(type_, value_, traceback_); }
  SavedException(const SavedException&) = delete;
  SavedException& operator=(const SavedException&) = delete;

  // The exception as an object, or null. Borrowed.
  PyObject* Normalized() {
    if (type_ == nullptr) return nullptr;
    PyErr_NormalizeException(&type_, &value_, &traceback_);
    return value_;
  }
  PyObject* type() const { return type_; }
  PyObject* traceback() const { return traceback_; }

  // Drops it: nothing is put back.
  void Forget() {
    Py_CLEAR(type_);
    Py_CLEAR(value_);
    Py_CLEAR(traceback_);
  }

 private:
  PyObject* type_ = nullptr;
  PyObject* value_ = nullptr;
  PyObject* traceback_ = nullptr;
};

// Attribute `name`, or none without an exception.
inline Ref Attribute(PyObject* object, const char* name) {
  Ref value(PyObject_GetAttrString(object, name));
  if (!value) DropException();
  return value;
}
inline Ref Attribute(PyObject* object, PyObject* name) {
  Ref value(PyObject_GetAttr(object, name));
  if (!value) DropException();
  return value;
}

// object.name() without making a bound method; none without an exception.
inline Ref CallMethod(PyObject* object, PyObject* name) {
  Ref result(PyObject_VectorcallMethod(name, &object, 1, nullptr));
  if (!result) DropException();
  return result;
}

// UTF-8 of a str; "" for anything else. Valid as long as the str lives.
inline std::string_view Utf8(PyObject* text) {
  if (text == nullptr || !PyUnicode_Check(text)) return {};
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text, &size);
  if (bytes == nullptr) {  // lone surrogates
    DropException();
    return {};
  }
  return {bytes, static_cast<size_t>(size)};
}

// "torch.nn.modules.linear.Linear"; built-in classes without their module. The
// script is __main__ in processes that multiprocessing spawned, too.
inline std::string QualifiedTypeName(PyObject* type) {
  const Ref module = Attribute(type, "__module__");
  const Ref qualname = Attribute(type, "__qualname__");
  const std::string_view where = Utf8(module.get());
  std::string name(Utf8(qualname.get()));
  if (where.empty() || where == "builtins") return name;
  if (where == "__mp_main__") return "__main__." + name;
  return std::string(where) + "." + name;
}

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CPYTHON_PYTHON_REF_H_
