#include "invariants/traincheck/conformance/py_json.h"

#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace traincheck {

namespace {

using nlohmann::json;

// Values are compared and flattened by recursion.
constexpr size_t kMaxDepth = 64;

// The library knows no NaN and no Infinity. In a line that has such a word each
// is replaced by a zero that nobody writes, and recognised by its spelling.
struct PythonNumber {
  absl::string_view word;
  absl::string_view stand_in;
  double value;
};

constexpr PythonNumber kPythonNumbers[] = {
    {"NaN", "0e999991", std::numeric_limits<double>::quiet_NaN()},
    {"-Infinity", "-0e999992", -std::numeric_limits<double>::infinity()},
    {"Infinity", "0e999993", std::numeric_limits<double>::infinity()},
};

bool HasPythonNumber(absl::string_view text) {
  return absl::StrContains(text, "NaN") || absl::StrContains(text, "Infinity");
}

constexpr absl::string_view kBlanks = " \t\n\r";

// Null: no number of Python's begins here, or something follows that would make
// another number of its stand-in.
const PythonNumber* PythonNumberAt(absl::string_view rest) {
  for (const PythonNumber& number : kPythonNumbers) {
    if (!absl::StartsWith(rest, number.word)) continue;
    rest.remove_prefix(number.word.size());
    const bool ends = rest.empty() || absl::StrContains(",]}", rest[0]) ||
                      absl::StrContains(kBlanks, rest[0]);
    return ends ? &number : nullptr;
  }
  return nullptr;
}

// With stand-ins outside of strings, where a value may begin. A word elsewhere
// ("-NaN", "0.NaN") stays, and the parser refuses the line as Python does.
std::string ReplacePythonNumbers(absl::string_view text) {
  std::string replaced;
  // Within quotes the words are text and stay.
  bool quoted = false;
  bool may_begin = true;
  for (size_t i = 0; i < text.size();) {
    const absl::string_view rest = text.substr(i);
    const PythonNumber* const found =
        quoted || !may_begin ? nullptr : PythonNumberAt(rest);
    if (!absl::StrContains(kBlanks, text[i])) {
      may_begin = !quoted && absl::StrContains("[,:", text[i]);
    }
    if (found != nullptr) {
      absl::StrAppend(&replaced, found->stand_in);
      i += found->word.size();
      continue;
    }
    if (text[i] == '"') quoted = !quoted;
    // An escaped quote does not end the string.
    const size_t bytes = quoted && text[i] == '\\' ? 2 : 1;
    absl::StrAppend(&replaced, rest.substr(0, bytes));
    i += bytes;
  }
  return replaced;
}

// Makes values of the parser's events. A document of the library's own, which
// cannot hold large integers and the order of keys, is never built.
class Builder : public nlohmann::json_sax<json> {
 public:
  Builder(PyPool* pool, bool has_stand_ins)
      : pool_(*pool), has_stand_ins_(has_stand_ins) {}

  const PyValue& value() const { return value_; }
  const std::string& error() const { return error_; }

  bool null() override { return Add(PyValue::None()); }
  bool boolean(bool value) override { return Add(PyValue::Bool(value)); }
  bool number_integer(number_integer_t value) override {
    return Add(PyValue::Integer(value));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value > std::numeric_limits<int64_t>::max()) {
      return Add(pool_.BigInteger(absl::StrCat(value)));
    }
    return Add(PyValue::Integer(static_cast<int64_t>(value)));
  }
  bool number_float(number_float_t value, const string_t& text) override {
    if (has_stand_ins_) {
      for (const PythonNumber& number : kPythonNumbers) {
        if (text == number.stand_in) return Add(PyValue::Float(number.value));
      }
    }
    // A larger integer comes here, too.
    if (text.find_first_of(".eE") == string_t::npos) {
      return Add(pool_.BigInteger(text));
    }
    return Add(PyValue::Float(value));
  }
  bool string(string_t& text) override { return Add(pool_.Text(text)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return Enter(); }
  bool key(string_t& text) override {
    open_.back().key = pool_.Intern(text);
    return true;
  }
  bool end_object() override {
    // Taken from the top before the pop, after which Add puts the value into
    // what stands around it.
    PyValue object = pool_.Object(std::move(open_.back().members));
    open_.pop_back();
    return Add(object);
  }
  bool start_array(std::size_t) override { return Enter(); }
  bool end_array() override {
    PyValue list = pool_.List(std::move(open_.back().items));
    open_.pop_back();
    return Add(list);
  }
  bool parse_error(std::size_t position, const std::string&,
                   const nlohmann::detail::exception& error) override {
    // 406: a float beyond a double.
    // The parser calls this for its own errors alone. A refusal of ours ends it
    // without a call, and its reason is kept.
    return Refuse(error.id == 406
                      ? std::string("a number beyond a double")
                      : absl::StrCat("not valid JSON at byte ", position));
  }

 private:
  struct Open {
    const std::string* key = nullptr;  // of the value that comes next
    PyList items;
    PyObject members;
  };

  bool Add(const PyValue& value) {
    if (open_.empty()) {
      value_ = value;
      // Null in lists alone: in an object a key comes before each value.
    } else if (open_.back().key != nullptr) {
      open_.back().members.push_back({open_.back().key, value});
    } else {
      open_.back().items.push_back(value);
    }
    return true;
  }
  bool Enter() {
    if (open_.size() == kMaxDepth) {
      return Refuse(absl::StrCat("nested deeper than ", kMaxDepth));
    }
    open_.emplace_back();
    return true;
  }
  bool Refuse(std::string error) {
    if (error_.empty()) error_ = std::move(error);
    return false;
  }

  PyPool& pool_;
  const bool has_stand_ins_;
  std::vector<Open> open_;
  PyValue value_;
  std::string error_;
};

}  // namespace

absl::StatusOr<PyValue> ParsePyJsonUntrusted(absl::string_view text,
                                             PyPool* pool) {
  std::string replaced;
  // Most lines have none of these words and are parsed as they are.
  // A position in an error counts bytes of the replaced text in such a line.
  const bool python = HasPythonNumber(text);
  if (python) {
    replaced = ReplacePythonNumbers(text);
    text = replaced;
  }
  Builder builder(pool, python);
  if (!json::sax_parse(text.begin(), text.end(), &builder)) {
    return absl::InvalidArgumentError(builder.error());
  }
  return builder.value();
}

}  // namespace traincheck
