#include "invariants/trace/call_values.h"

#include <algorithm>
#include <utility>

#include "proto/torch_types.h"
#include "proto/varint.h"

namespace traincheck {

namespace {

// As torch writes a device. A negative index stands for none ("cpu"). A type
// without a name keeps its number, so that rules do not take it for another
// device.
std::string DeviceName(uint8_t type, int8_t index) {
  if (type == kUnknownNumber) return "";
  std::string name(DeviceTypeName(type));
  if (name.empty()) name = "device" + std::to_string(type);
  return index < 0 ? name : name + ":" + std::to_string(index);
}

// The bytes of a kValueTensor.
class TensorBytes {
 public:
  explicit TensorBytes(std::string_view bytes) : bytes_(bytes) {}

  std::optional<TensorValue> Read() {
    // The five bytes that each tensor has: type, device and its index, layout,
    // flags.
    if (bytes_.size() < 5) return std::nullopt;
    TensorValue tensor;
    tensor.dtype = DtypeName(static_cast<Dtype>(Byte()));
    const uint8_t device = Byte();
    tensor.device = DeviceName(device, static_cast<int8_t>(Byte()));
    tensor.layout = Byte();
    const uint8_t flags = Byte();
    if ((flags & kTensorAutogradKnown) != 0) {
      tensor.requires_grad = (flags & kTensorRequiresGrad) != 0;
      tensor.has_grad_fn = (flags & kTensorHasGradFn) != 0;
    }
    tensor.storage = Varint();
    if (const uint64_t dimensions = Varint(); dimensions > 0) {
      // The record has the number plus 1, because 0 says that it is not known
      // and a scalar has no dimensions.
      tensor.dimensions = dimensions - 1;
    }
    while (!bytes_.empty() && ok_) tensor.sizes.push_back(Varint());
    // Fewer sizes than dimensions are right, because a record has the first
    // ones only. More sizes are damage.
    if (!ok_ || tensor.sizes.size() > tensor.dimensions.value_or(0)) {
      return std::nullopt;
    }
    return tensor;
  }

 private:
  // REQUIRES: a byte is left; Read has checked the size for all of them.
  uint8_t Byte() {
    const auto byte = static_cast<uint8_t>(bytes_.front());
    bytes_.remove_prefix(1);
    return byte;
  }
  uint64_t Varint() {
    uint64_t value = 0;
    ok_ = TakeVarint(&bytes_, &value) && ok_;
    return value;
  }

  std::string_view bytes_;
  bool ok_ = true;
};

// Walks over fields: names of values, and the values behind them.
class ValueReader {
 public:
  ValueReader(std::string_view bytes, const ProcessDefinitions& definitions)
      : fields_(bytes), definitions_(definitions) {
    Step();
  }

  bool more() const { return more_; }
  Field field() const { return fields_.field(); }
  uint64_t number() const { return fields_.unsigned_value(); }
  const std::string& text() const {
    return definitions_.String(static_cast<uint32_t>(number()));
  }
  void Step() { more_ = fields_.Next(); }

  // The value that begins here, up to the next name.
  CallValue Read() {
    CallValue value;
    // A value may take several fields (a container: its type and its length),
    // so all that stand before the next name belong to it.
    while (more_ && ReadPart(&value)) Step();
    // Elements have no elements of their own, so one level is all, and the
    // bytes of a peer cannot make this recurse.
    while (more_ &&
           (field() == Field::kElement || field() == Field::kElementKey)) {
      const std::string name =
          field() == Field::kElement ? std::to_string(number()) : text();
      Step();
      CallValue element;
      while (more_ && ReadPart(&element)) Step();
      value.elements.push_back({name, std::move(element)});
    }
    return value;
  }

 private:
  // False: the field belongs to no value.
  bool ReadPart(CallValue* to) {
    switch (field()) {
      case Field::kValueUnsigned:
        // The agent writes integers as kValueSigned; the format allows this
        // form as well.
        to->value = static_cast<int64_t>(number());
        return true;
      case Field::kValueSigned:
        to->value = fields_.signed_value();
        return true;
      case Field::kValueDouble:
        to->value = fields_.double_value();
        return true;
      case Field::kValueString:
        to->value = text();
        return true;
      case Field::kValueBool:
        to->value = number() != 0;
        return true;
      case Field::kValueNone:
        to->value = NoneValue();
        return true;
      case Field::kValueObject:
        to->value = ObjectValue{static_cast<uint32_t>(number())};
        return true;
      case Field::kValueType:
        to->value = OtherValue{text()};
        return true;
      default:
        return ReadDetail(to);
    }
  }

  bool ReadDetail(CallValue* to) {
    switch (field()) {
      case Field::kValueLength:
        to->length = number();
        return true;
      case Field::kValueTensor:
        if (auto tensor = TensorBytes(fields_.bytes_value()).Read()) {
          to->value = *std::move(tensor);
        }
        return true;
      case Field::kValueDigest:
        // The digest comes behind its tensor. Of a tensor that could not be
        // read it says nothing.
        if (auto* tensor = std::get_if<TensorValue>(&to->value)) {
          tensor->digest = fields_.word_value();
        }
        return true;
      default:
        return false;
    }
  }

  FieldReader fields_;
  const ProcessDefinitions& definitions_;
  bool more_ = false;
};

struct Parameter {
  std::string name;
  std::optional<CallValue> fallback;
};

// The fields go from the first parameter to the end of the definition: what
// belongs to no parameter (whether the result is recorded) is passed over.
std::vector<Parameter> ParametersOf(const FunctionInfo* function,
                                    const ProcessDefinitions& definitions) {
  std::vector<Parameter> parameters;
  if (function == nullptr) return parameters;
  ValueReader reader(function->parameters, definitions);
  while (reader.more()) {
    if (reader.field() != Field::kParameter) {
      reader.Step();
      continue;
    }
    Parameter parameter = {reader.text(), std::nullopt};
    reader.Step();
    CallValue fallback = reader.Read();
    // A default of a kind that this build does not know stands for nothing: the
    // argument counts as not recorded.
    if (!fallback.Get<std::monostate>()) parameter.fallback = fallback;
    parameters.push_back(std::move(parameter));
  }
  return parameters;
}

ToldArguments ReadArguments(std::string_view content,
                            const std::vector<Parameter>& parameters,
                            const ProcessDefinitions& definitions) {
  ToldArguments arguments;
  std::vector<bool> given(parameters.size());
  ValueReader reader(content, definitions);
  while (reader.more()) {
    const Field field = reader.field();
    const uint64_t number = reader.number();
    std::string name;
    // A position beyond the list (a damaged record, or a function whose
    // definition is missing) names nothing, and its value is skipped.
    if (field == Field::kArgument && number < parameters.size()) {
      given[number] = true;
      name = parameters[number].name;
    } else if (field == Field::kArgumentName) {
      name = reader.text();
    }
    if (field == Field::kContentCut) arguments.cut = true;
    reader.Step();
    if (!name.empty()) {
      arguments.all.push_back({std::move(name), reader.Read(), false});
    }
  }
  // An argument that is missing in a record that was cut may have been given,
  // so its default does not stand for it.
  for (size_t i = 0; i < parameters.size() && !arguments.cut; ++i) {
    if (given[i] || !parameters[i].fallback.has_value()) continue;
    arguments.all.push_back(
        {parameters[i].name, *parameters[i].fallback, true});
  }
  return arguments;
}

}  // namespace

const CallValue* ToldArguments::Find(std::string_view name) const {
  // A call has a handful of arguments, so a search costs less than a table for
  // each call.
  const auto found =
      std::find_if(all.begin(), all.end(),
                   [&](const CallArgument& one) { return one.name == name; });
  return found == all.end() ? nullptr : &found->value;
}

ToldArguments ArgumentsOf(const Call& call,
                          const ProcessDefinitions& definitions) {
  return ReadArguments(call.content, ParametersOf(call.function, definitions),
                       definitions);
}

ToldArguments ArgumentsOf(std::string_view content,
                          const ProcessDefinitions& definitions) {
  return ReadArguments(content, {}, definitions);
}

std::optional<CallValue> ResultOf(const Call& call,
                                  const ProcessDefinitions& definitions) {
  ValueReader reader(call.result, definitions);
  while (reader.more()) {
    // Fields in front of the result are not values of it, and are passed over.
    const bool is_result = reader.field() == Field::kReturn;
    reader.Step();
    if (is_result) return reader.Read();
  }
  return std::nullopt;
}

uint64_t StorageOf(const CallValue* value) {
  const auto* tensor = value ? value->Get<TensorValue>() : nullptr;
  return tensor ? tensor->storage : 0;
}

}  // namespace traincheck
