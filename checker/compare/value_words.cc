#include "checker/compare/value_words.h"

#include <array>
#include <charconv>
#include <cinttypes>
#include <cstdio>
#include <type_traits>
#include <variant>
#include <vector>

#include "base/printable_text.h"

namespace traincheck {
namespace {

std::string ShapeWords(const std::vector<uint64_t>& sizes) {
  std::string words;
  for (const uint64_t size : sizes) {
    words += (words.empty() ? "" : ", ") + std::to_string(size);
  }
  return "[" + words + "]";
}

// "float32" of "torch.float32". Empty for what was recorded without a type.
std::string DtypeWords(const std::string& dtype) {
  constexpr std::string_view kPrefix = "torch.";
  if (dtype.rfind(kPrefix, 0) == 0) return dtype.substr(kPrefix.size());
  return dtype.empty() ? "a tensor" : dtype;
}

// Each property only where it was recorded: an agent that has not looked says
// nothing, and "no" would be read as a fact.
std::string TensorWords(const TensorValue& tensor) {
  std::string words = DtypeWords(tensor.dtype);
  if (tensor.dimensions.has_value()) words += " " + ShapeWords(tensor.sizes);
  if (!tensor.device.empty()) words += " on " + tensor.device;
  if (tensor.requires_grad == true) words += ", requires a gradient";
  if (tensor.has_grad_fn == true) words += ", has a grad_fn";
  if (tensor.digest) words += ", " + DigestWords(*tensor.digest);
  return words;
}

// By class and path instead of by id: ids differ between two runs of one
// program.
std::string ObjectWords(uint32_t id, const ProcessDefinitions& definitions) {
  const ObjectInfo* object = definitions.Object(id);
  if (object == nullptr) return "an object";
  return object->path.empty() ? object->class_name
                              : object->class_name + " " + object->path;
}

// Makes one visitor of several functions, so that a new kind of value does not
// compile until it has words.
template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};

std::string PlainWords(const CallValue& value,
                       const ProcessDefinitions& definitions) {
  return std::visit(
      Overloaded{
          [](std::monostate) { return std::string("something"); },
          [](NoneValue) { return std::string("None"); },
          [](bool truth) { return std::string(truth ? "True" : "False"); },
          [](int64_t number) { return std::to_string(number); },
          [](double number) { return NumberWords(number); },
          [](const std::string& text) { return QuotePrintable(text); },
          [](const TensorValue& tensor) { return TensorWords(tensor); },
          [&](const ObjectValue& object) {
            return ObjectWords(object.object, definitions);
          },
          [](const OtherValue& other) { return other.class_name; },
      },
      value.value);
}

}  // namespace

// Words for each point and no default, so that the compiler names a new point
// that has none.
const char* PointWords(StatePoint point) {
  switch (point) {
    case StatePoint::kNone:
      return "";
    case StatePoint::kConstruction:
      return " as it was first seen";
    case StatePoint::kWrapEnd:
      return " after a wrapper took the model";
    case StatePoint::kForwardBegin:
      return " as a training forward begins";
    case StatePoint::kBackwardEnd:
      return " after the backward";
    case StatePoint::kPreClip:
      return " before clipping";
    case StatePoint::kPostClip:
      return " after clipping";
    case StatePoint::kPreStep:
      return " before the optimizer's step";
    case StatePoint::kPostStep:
      return " after the optimizer's step";
    case StatePoint::kGradClear:
      return " after gradients were cleared";
    case StatePoint::kStepEnd:
      return " at the end of the step before";
    case StatePoint::kSave:
      return " as a checkpoint was written";
    case StatePoint::kLoad:
      return " after a checkpoint was read";
    case StatePoint::kStateDict:
      return " as a state was given out";
    case StatePoint::kLoadStateDict:
      return " after a state was loaded";
    case StatePoint::kFetch:
      return " as a batch is fetched";
    case StatePoint::kWorkerInit:
      return " as a worker begins";
    case StatePoint::kForwardEnd:
      return " as a forward ends";
  }
  return "";
}

// Room for the longest double: 17 digits, sign, point and exponent are 24
// characters.
std::string NumberWords(double value) {
  std::array<char, 32> text;
  const auto end =
      std::to_chars(text.data(), text.data() + text.size(), value).ptr;
  return std::string(text.data(), end);
}

std::string DigestWords(uint64_t digest) {
  std::array<char, 17> text;
  std::snprintf(text.data(), text.size(), "%016" PRIx64, digest);
  return "content " + std::string(text.data());
}

// A container is shown with the elements that were recorded, which may be fewer
// than its length says.
std::string ValueWords(const CallValue& value,
                       const ProcessDefinitions& definitions) {
  std::string words = PlainWords(value, definitions);
  if (value.length) words += " of " + std::to_string(*value.length);
  for (size_t i = 0; i < value.elements.size(); ++i) {
    words += (i == 0 ? ": " : ", ") +
             PlainWords(value.elements[i].value, definitions);
  }
  return words;
}

std::string ContentWords(std::string_view content,
                         const ProcessDefinitions& definitions) {
  std::string words;
  for (const CallArgument& argument : ArgumentsOf(content, definitions).all) {
    words += (words.empty() ? "" : ", ") + argument.name + "=" +
             ValueWords(argument.value, definitions);
  }
  return words.empty() ? "entered" : words;
}

std::string VariableWords(const VariableInfo& variable) {
  return DtypeWords(variable.dtype) + " " + ShapeWords(variable.shape) +
         (variable.trainable ? ", trainable" : "");
}

// An entry that is not a tensor has no type: two runs are then compared only by
// whether it is there.
std::string EntryWords(const CheckpointEntryEvent& entry) {
  if (entry.dtype.empty()) return "there";
  std::string words = DtypeWords(entry.dtype) + " " + ShapeWords(entry.shape);
  if (entry.digest) words += ", " + DigestWords(*entry.digest);
  return words;
}

}  // namespace traincheck
