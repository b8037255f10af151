#include "invariants/relations/api_arg/call_usage.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "invariants/rules/plain_value.h"

namespace traincheck {

namespace {

constexpr char kObject[] = "an object";
constexpr char kLengthTrait[] = ".length";
// Settings are short tuples (a kernel size, the dimensions of a permute). Of a
// longer list only the length and the first elements are compared.
constexpr size_t kMostElements = 4;

// An argument of a kind that rules cannot name. Containers count as such under
// their own name; what they hold are traits of their own (AddElements).
bool IsObject(const CallValue& value) {
  return value.Get<ObjectValue>() || value.Get<OtherValue>() ||
         !value.elements.empty();
}

// A property that was not recorded is left out: a default would look like
// another usage.
void AddTensor(const std::string& name, const TensorValue& tensor,
               Usage* usage) {
  (*usage)[name] = kTensor;
  if (!tensor.dtype.empty()) (*usage)[name + ".dtype"] = tensor.dtype;
  if (tensor.dimensions) (*usage)[name + ".dimensions"] = *tensor.dimensions;
  if (tensor.requires_grad) {
    (*usage)[name + kGradTrait] = *tensor.requires_grad;
  }
}

void AddValue(const std::string& name, const CallValue& value, Usage* usage) {
  if (const auto* tensor = value.Get<TensorValue>()) {
    AddTensor(name, *tensor, usage);
  } else if (const auto plain = PlainValue(value)) {
    (*usage)[name] = *plain;
  } else if (IsObject(value)) {
    (*usage)[name] = kObject;
  }
}

// A container: its length and its first elements, one level down. A function
// that takes sizes or dimensions is given them as a container.
void AddElements(const std::string& name, const CallValue& value,
                 Usage* usage) {
  if (value.elements.empty()) return;
  if (value.length) (*usage)[name + kLengthTrait] = *value.length;
  for (size_t i = 0; i < std::min(kMostElements, value.elements.size()); ++i) {
    const CallElement& element = value.elements[i];
    AddValue(absl::StrCat(name, "[", element.name, "]"), element.value, usage);
  }
}

}  // namespace

Usage UsageOf(const Call& call, const ProcessDefinitions& definitions) {
  Usage usage;
  for (const CallArgument& argument : ArgumentsOf(call, definitions).all) {
    AddValue(argument.name, argument.value, &usage);
    AddElements(argument.name, argument.value, &usage);
  }
  const auto result = ResultOf(call, definitions);
  if (!result) return usage;
  AddValue(kResultTrait, *result, &usage);
  AddElements(kResultTrait, *result, &usage);
  return usage;
}

std::string OwnerOfTrait(const std::string& trait) {
  return trait.substr(0, trait.find('.'));
}

std::string ArgumentOfTrait(const std::string& trait) {
  return trait.substr(0, trait.find_first_of(".["));
}

}  // namespace traincheck
