// Values as TrainCheck's checker has them: JSON in Python's eyes.
//
// 1, 1.0 and true are equal, an object's null is the value None, and a missing
// field is NaN: equal to nothing, itself included (semantics, section 0).
//
// Threads: values are plain and may be shared; a pool belongs to one thread at
// a time. A value lives as long as the pool that made it.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_VALUE_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_VALUE_H_

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/node_hash_set.h"
#include "absl/strings/string_view.h"
#include "nlohmann/json.hpp"

namespace traincheck {

class PyValue;
// A key and its value.
struct PyMember;
using PyList = std::vector<PyValue>;
using PyObject = std::vector<PyMember>;  // in the order of the text

class PyValue {
 public:
  enum class Kind : uint8_t {
    kAbsent,  // NaN; no such field
    kNone,
    kBool,
    kInteger,
    kBigInteger,  // beyond 64 bits with a sign, kept as its digits
    kFloat,
    kText,
    kList,
    kObject,
  };

  PyValue() = default;  // absent
  static PyValue None();
  static PyValue Bool(bool value);
  static PyValue Integer(int64_t value);
  static PyValue Float(double value);  // NaN: absent

  Kind kind() const { return kind_; }
  bool absent() const { return kind_ == Kind::kAbsent; }
  bool none() const { return kind_ == Kind::kNone; }
  // Of int and bool, which is one in Python.
  bool integral() const {
    return kind_ == Kind::kBool || kind_ == Kind::kInteger ||
           kind_ == Kind::kBigInteger;
  }
  bool number() const { return integral() || kind_ == Kind::kFloat; }
  // Can it be in a set?
  bool hashable() const {
    return kind_ != Kind::kList && kind_ != Kind::kObject;
  }

  // REQUIRES of each: it is of that kind.
  bool boolean() const { return as_.boolean; }
  int64_t integer() const { return as_.integer; }
  double real() const { return as_.real; }
  const std::string& text() const { return *as_.text; }
  const PyList& list() const { return *as_.list; }
  const PyObject& object() const { return *as_.object; }

  // Of a number that is no kBigInteger: exact.
  long double Number() const;
  // "key": of an object; null: it has none.
  const PyValue* Find(absl::string_view key) const;

  // Python's ==.
  bool operator==(const PyValue& other) const;
  bool operator!=(const PyValue& other) const { return !(*this == other); }

  // REQUIRES: hashable().
  template <typename H>
  friend H AbslHashValue(H state, const PyValue& value) {
    return H::combine(std::move(state), value.HashOfScalar());
  }

 private:
  friend class PyPool;

  size_t HashOfScalar() const;

  union {
    bool boolean;
    int64_t integer;
    double real;
    const std::string* text;
    const PyList* list;
    const PyObject* object;
  } as_ = {};
  Kind kind_ = Kind::kAbsent;
};

struct PyMember {
  const std::string* key = nullptr;
  PyValue value;
};

// Below 0, 0 or above 0, as the first is less, equal or greater. Nullopt: they
// have no order, which ends the original. NaN is not less and not greater:
// `nan` is set, and 0 given.
std::optional<int> ComparePyValues(const PyValue& a, const PyValue& b,
                                   bool* nan);

// In a few words, for people: "3", "None", "a list of 2".
std::string PyValueText(const PyValue& value);

// Makes values and keeps what they point to. Equal texts are kept once.
class PyPool {
 public:
  PyPool() = default;
  PyPool(const PyPool&) = delete;
  PyPool& operator=(const PyPool&) = delete;

  const std::string* Intern(absl::string_view text);
  PyValue Text(absl::string_view text);
  PyValue BigInteger(absl::string_view digits);
  PyValue List(PyList items);
  // Of members with one key the last counts.
  PyValue Object(PyObject members);
  // As TrainCheck has it after reading.
  PyValue FromJson(const nlohmann::json& json);

 private:
  absl::node_hash_set<std::string> texts_;
  std::deque<PyList> lists_;
  std::deque<PyObject> objects_;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_CONFORMANCE_PY_VALUE_H_
