#include "invariants/traincheck/conformance/py_value.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

namespace traincheck {

namespace {

// Values are shown within reasons of one line.
constexpr size_t kMaxTextBytes = 80;
// Up to so many members each is compared with those before it.
constexpr size_t kFewMembers = 32;

// As far as a double holds it: only comparisons of a big integer with a number
// of another kind, and the order of two, depend on it. == compares the digits
// of two big integers; in order the first of two that are one double counts as
// the larger.
double AsDouble(const PyValue& value) {
  if (value.kind() != PyValue::Kind::kBigInteger) {
    return static_cast<double>(value.Number());
  }
  double number = 0;
  return absl::SimpleAtod(value.text(), &number) ? number : 0;
}

bool EqualNumbers(const PyValue& a, const PyValue& b) {
  const bool big_a = a.kind() == PyValue::Kind::kBigInteger;
  const bool big_b = b.kind() == PyValue::Kind::kBigInteger;
  if (big_a && big_b) return a.text() == b.text();
  if (big_a || big_b) {
    // An integer of 64 bits is none that needs more; a float may be.
    const PyValue& other = big_a ? b : a;
    return other.kind() == PyValue::Kind::kFloat && AsDouble(a) == AsDouble(b);
  }
  return a.Number() == b.Number();
}

// One direction is enough: both have as many members, and no key twice
// (PyPool::Object).
bool EqualObjects(const PyValue& a, const PyValue& b) {
  if (a.object().size() != b.object().size()) return false;
  return std::all_of(a.object().begin(), a.object().end(),
                     [&b](const PyMember& member) {
                       const PyValue* other = b.Find(*member.key);
                       return other != nullptr && member.value == *other;
                     });
}

// The members, of each key the last one at the place of the first, as a dict
// has them.
PyObject WithoutRepeats(PyObject members) {
  absl::flat_hash_map<const std::string*, size_t> places;
  PyObject kept;
  for (const PyMember& member : members) {
    const auto [known, added] = places.try_emplace(member.key, kept.size());
    if (added) {
      kept.push_back(member);
    } else {
      kept[known->second].value = member.value;
    }
  }
  return kept;
}

// False for nearly every object, which is then not copied. A large one is
// copied in any case: comparing its members in pairs would cost the square of
// their number.
bool MayRepeat(const PyObject& members) {
  if (members.size() > kFewMembers) return true;
  for (size_t i = 1; i < members.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      // Keys are interned: equal ones have one address.
      if (members[i].key == members[j].key) return true;
    }
  }
  return false;
}

}  // namespace

PyValue PyValue::None() {
  PyValue value;
  value.kind_ = Kind::kNone;
  return value;
}

PyValue PyValue::Bool(bool boolean) {
  PyValue value;
  value.kind_ = Kind::kBool;
  value.as_.boolean = boolean;
  return value;
}

PyValue PyValue::Integer(int64_t integer) {
  PyValue value;
  value.kind_ = Kind::kInteger;
  value.as_.integer = integer;
  return value;
}

PyValue PyValue::Float(double real) {
  PyValue value;
  // pandas has NaN for a field that is missing, so that both are one there.
  if (std::isnan(real)) return value;
  value.kind_ = Kind::kFloat;
  value.as_.real = real;
  return value;
}

long double PyValue::Number() const {
  if (kind_ == Kind::kBool) return as_.boolean ? 1 : 0;
  // 64 bits of mantissa at least: both kinds are exact.
  static_assert(std::numeric_limits<long double>::digits >= 64);
  if (kind_ == Kind::kInteger) return as_.integer;
  return as_.real;
}

const PyValue* PyValue::Find(absl::string_view key) const {
  if (kind_ != Kind::kObject) return nullptr;
  for (const PyMember& member : object()) {
    if (*member.key == key) return &member.value;
  }
  return nullptr;
}

bool PyValue::operator==(const PyValue& other) const {
  if (number() && other.number()) return EqualNumbers(*this, other);
  if (kind_ != other.kind_) return false;
  switch (kind_) {
    case Kind::kNone:
      return true;
    case Kind::kText:
      // Texts of one pool are equal where their addresses are, which settles
      // most comparisons.
      return as_.text == other.as_.text || text() == other.text();
    case Kind::kList:
      // By recursion, whose depth the parser bounds.
      return list() == other.list();
    case Kind::kObject:
      return EqualObjects(*this, other);
    default:
      // Absent, which is NaN, equals nothing, itself included.
      return false;
  }
}

size_t PyValue::HashOfScalar() const {
  switch (kind_) {
    case Kind::kText:
      return std::hash<std::string>()(text());
    case Kind::kBool:
    case Kind::kInteger:
    case Kind::kBigInteger:
    case Kind::kFloat:
      // Equal numbers of all kinds give the same double.
      return std::hash<double>()(AsDouble(*this));
    default:
      return static_cast<size_t>(kind_);
  }
}

// Python orders numbers among each other and texts among each other; any other
// pair raises there.
std::optional<int> ComparePyValues(const PyValue& a, const PyValue& b,
                                   bool* nan) {
  const auto numeric = [](const PyValue& v) {
    return v.number() || v.absent();
  };
  if (numeric(a) && numeric(b)) {
    *nan = a.absent() || b.absent();
    // Equality first: two big integers that differ may be one double.
    if (*nan || a == b) return 0;
    const bool exact = a.kind() != PyValue::Kind::kBigInteger &&
                       b.kind() != PyValue::Kind::kBigInteger;
    if (exact) return a.Number() < b.Number() ? -1 : 1;
    return AsDouble(a) < AsDouble(b) ? -1 : 1;
  }
  if (a.kind() != PyValue::Kind::kText || b.kind() != PyValue::Kind::kText) {
    return std::nullopt;
  }
  // UTF-8 sorts as its code points do.
  return a.text().compare(b.text());
}

std::string PyValueText(const PyValue& value) {
  switch (value.kind()) {
    case PyValue::Kind::kAbsent:
      return "nothing";
    case PyValue::Kind::kNone:
      return "None";
    case PyValue::Kind::kBool:
      return value.boolean() ? "True" : "False";
    case PyValue::Kind::kInteger:
      return absl::StrCat(value.integer());
    case PyValue::Kind::kFloat:
      return absl::StrCat(value.real());
    case PyValue::Kind::kText:
    case PyValue::Kind::kBigInteger:
      return value.text().substr(0, kMaxTextBytes);
    case PyValue::Kind::kList:
      return absl::StrCat("a list of ", value.list().size());
    case PyValue::Kind::kObject:
      return absl::StrCat("an object of ", value.object().size());
  }
  return "";
}

const std::string* PyPool::Intern(absl::string_view text) {
  // Most texts are there already, and emplace would make a string before it
  // looks.
  const auto found = texts_.find(text);
  if (found != texts_.end()) return &*found;
  return &*texts_.emplace(text).first;
}

PyValue PyPool::Text(absl::string_view text) {
  PyValue value;
  value.kind_ = PyValue::Kind::kText;
  value.as_.text = Intern(text);
  return value;
}

PyValue PyPool::BigInteger(absl::string_view digits) {
  PyValue value = Text(digits);
  value.kind_ = PyValue::Kind::kBigInteger;
  return value;
}

PyValue PyPool::List(PyList items) {
  PyValue value;
  value.kind_ = PyValue::Kind::kList;
  // A deque never moves its lists, to which values point.
  value.as_.list = &lists_.emplace_back(std::move(items));
  return value;
}

PyValue PyPool::Object(PyObject members) {
  if (MayRepeat(members)) members = WithoutRepeats(std::move(members));
  PyValue value;
  value.kind_ = PyValue::Kind::kObject;
  value.as_.object = &objects_.emplace_back(std::move(members));
  return value;
}

// Rules are read by nlohmann's parser and traces by py_json.cc. Both become
// values of the same kinds, so that a rule's 1 equals a trace's 1.0.
PyValue PyPool::FromJson(const nlohmann::json& json) {
  if (json.is_null()) return PyValue::None();
  if (json.is_boolean()) return PyValue::Bool(json.get<bool>());
  if (json.is_number_unsigned() &&
      json.get<uint64_t>() > std::numeric_limits<int64_t>::max()) {
    return BigInteger(absl::StrCat(json.get<uint64_t>()));
  }
  if (json.is_number_integer()) return PyValue::Integer(json.get<int64_t>());
  if (json.is_number()) return PyValue::Float(json.get<double>());
  if (json.is_string()) return Text(json.get_ref<const std::string&>());
  if (json.is_array()) {
    PyList items;
    for (const auto& item : json) items.push_back(FromJson(item));
    return List(std::move(items));
  }
  PyObject members;
  for (const auto& [key, item] : json.items()) {
    members.push_back({Intern(key), FromJson(item)});
  }
  return Object(std::move(members));
}

}  // namespace traincheck
