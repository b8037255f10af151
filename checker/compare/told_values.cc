#include "checker/compare/told_values.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <variant>

#include "checker/compare/value_words.h"

namespace traincheck {
namespace {

// A property that only one of the calls records is unknown, so it is not a
// difference.
template <typename T>
bool Agree(const std::optional<T>& a, const std::optional<T>& b) {
  return !a.has_value() || !b.has_value() || *a == *b;
}

// "cuda" of "cuda:1".
std::string KindOfDevice(const std::string& device) {
  return device.substr(0, device.find(':'));
}

// Paths and URLs have a slash. They differ between equal runs: another folder
// for checkpoints is not a difference of the training.
bool NamesPlace(const std::string& text) {
  return text.find('/') != std::string::npos;
}

bool SameNumber(double a, double b) {
  // NaN has many bit patterns, which depend on the operation and the processor.
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

bool SameTensor(const TensorValue& a, const TensorValue& b) {
  return a.dtype == b.dtype &&
         KindOfDevice(a.device) == KindOfDevice(b.device) &&
         a.layout == b.layout && Agree(a.requires_grad, b.requires_grad) &&
         Agree(a.has_grad_fn, b.has_grad_fn) &&
         Agree(a.dimensions, b.dimensions) &&
         (!a.dimensions || !b.dimensions || a.sizes == b.sizes) &&
         Agree(a.digest, b.digest);
}

// Is the value recorded in another form than itself: a text by its length, an
// object by its class?
bool IsCutShort(const CallValue& value) {
  return value.Get<std::monostate>() || value.Get<OtherValue>() ||
         value.Get<ObjectValue>();
}

class ValueComparison {
 public:
  explicit ValueComparison(const DefinitionsOfBoth& definitions)
      : of_(definitions) {}

  bool Same(const CallValue& a, const CallValue& b) const {
    if (!Agree(a.length, b.length) || !SamePlain(a, b)) return false;
    // Elements beyond the first ones are recorded as far as there is room, the
    // length always.
    const size_t both = std::min(a.elements.size(), b.elements.size());
    for (size_t i = 0; i < both; ++i) {
      if (a.elements[i].name != b.elements[i].name ||
          !Same(a.elements[i].value, b.elements[i].value)) {
        return false;
      }
    }
    return true;
  }

 private:
  bool SamePlain(const CallValue& a, const CallValue& b) const {
    if (a.value.index() != b.value.index()) {
      // What one run records by length or class may be the value that the other
      // one records: unknown, and so not a difference.
      return IsCutShort(a) || IsCutShort(b);
    }
    if (const auto* number = a.Get<double>()) {
      return SameNumber(*number, *b.Get<double>());
    }
    if (const auto* tensor = a.Get<TensorValue>()) {
      return SameTensor(*tensor, *b.Get<TensorValue>());
    }
    if (const auto* text = a.Get<std::string>()) {
      const auto& other = *b.Get<std::string>();
      return *text == other || NamesPlace(*text) || NamesPlace(other);
    }
    if (const auto* truth = a.Get<bool>()) return *truth == *b.Get<bool>();
    if (const auto* whole = a.Get<int64_t>()) {
      return *whole == *b.Get<int64_t>();
    }
    return ValueWords(a, of_.a) == ValueWords(b, of_.b);  // objects, classes
  }

  const DefinitionsOfBoth& of_;
};

}  // namespace

ToldComparison CompareArguments(const Call& a, const Call& b,
                                const DefinitionsOfBoth& definitions) {
  ToldComparison result;
  const auto& category = a.function->category.text();
  // Its arguments are addresses, ports and stores.
  if (category == "init_process_group") return result;
  const ToldArguments in_a = ArgumentsOf(a, definitions.a);
  const ToldArguments in_b = ArgumentsOf(b, definitions.b);
  const ValueComparison values(definitions);
  for (const CallArgument& argument : in_a.all) {
    const CallValue* other = in_b.Find(argument.name);
    // Arguments are recorded as far as there is room, so one that is absent is
    // unknown.
    if (other == nullptr) continue;
    ++result.compared;
    if (result.first || values.Same(argument.value, *other)) continue;
    result.first = {argument.name, ValueWords(argument.value, definitions.a),
                    ValueWords(*other, definitions.b)};
  }
  return result;
}

ToldComparison CompareResults(const Call& a, const Call& b,
                              const DefinitionsOfBoth& definitions) {
  ToldComparison result;
  const std::optional<CallValue> in_a = ResultOf(a, definitions.a);
  const std::optional<CallValue> in_b = ResultOf(b, definitions.b);
  if (!in_a || !in_b) return result;
  result.compared = 1;
  if (ValueComparison(definitions).Same(*in_a, *in_b)) return result;
  result.first = {"", ValueWords(*in_a, definitions.a),
                  ValueWords(*in_b, definitions.b)};
  return result;
}

}  // namespace traincheck
