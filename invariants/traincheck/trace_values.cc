#include "invariants/traincheck/trace_values.h"

#include <algorithm>
#include <cctype>
#include <limits>
#include <optional>
#include <vector>

#include "absl/strings/match.h"
#include "invariants/relations/traincheck_rules/names.h"
#include "invariants/traincheck/function_kind.h"
#include "proto/torch_types.h"
#include "proto/varint.h"

namespace traincheck {

namespace {

using nlohmann::json;

// As the agent bounds them.
constexpr size_t kMaxElements = 8;
constexpr size_t kMaxTextBytes = 128;
constexpr size_t kMaxSizes = 8;

constexpr const char* kTorchConstants[] = {
    "torch.dtype", "torch.device", "torch.layout", "torch.memory_format"};

// What the agent never records of a training must not come in by a trace
// either.
bool IsSecret(std::string name) {
  std::transform(name.begin(), name.end(), name.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  for (const char* part : {"token", "key", "password", "secret"}) {
    if (absl::StrContains(name, part)) return true;
  }
  return false;
}

std::optional<bool> Truth(const json& tensor, const char* key) {
  const auto found = tensor.find(key);
  if (found == tensor.end() || !found->is_boolean()) return std::nullopt;
  return found->get<bool>();
}

// No function has made a leaf. TrainCheck leaves the attribute grad_fn out,
// because it is an object, so is_leaf stands for it.
std::optional<bool> HasGradFn(const json& tensor) {
  const auto leaf = Truth(tensor, "is_leaf");
  if (!leaf) return std::nullopt;
  return !*leaf;
}

// The number that Python gave the tensor's data; 0: not recorded.
uint64_t Identity(const json& tensor) {
  for (const auto& [name, value] : tensor.items()) {
    if (WithoutFieldPrefix(name) == "data_ID" && value.is_number_unsigned()) {
      return value.get<uint64_t>();
    }
  }
  return 0;
}

uint8_t DeviceOf(const std::string& type, const json& tensor) {
  // A type such as torch.cuda.FloatTensor says it without the attribute.
  const bool cuda = absl::StrContains(type, "cuda");
  if (cuda || Truth(tensor, "is_cuda").value_or(false)) return kDeviceCuda;
  if (Truth(tensor, "is_cpu").value_or(false)) return kDeviceCpu;
  if (Truth(tensor, "is_meta").value_or(false)) return kDeviceMeta;
  return kUnknownNumber;
}

void AppendVarint(uint64_t value, std::string* bytes) {
  char buffer[kMaxVarintBytes];
  bytes->append(buffer, PutVarint(value, buffer));
}

uint8_t AutogradFlags(const json& tensor) {
  const auto requires_grad = Truth(tensor, "requires_grad");
  const auto has_grad_fn = HasGradFn(tensor);
  // Both or neither: the record has one bit for what is known of them.
  if (!requires_grad || !has_grad_fn) return 0;
  return kTensorAutogradKnown | (*requires_grad ? kTensorRequiresGrad : 0) |
         (*has_grad_fn ? kTensorHasGradFn : 0);
}

void AppendSizes(const json& tensor, std::string* bytes) {
  const auto shape = tensor.find("shape");
  const bool known =
      shape != tensor.end() && shape->is_array() &&
      std::all_of(shape->begin(), shape->end(),
                  [](const json& size) { return size.is_number_unsigned(); });
  // The number plus 1, because 0 says that it is not known.
  AppendVarint(known ? shape->size() + 1 : 0, bytes);
  if (!known) return;
  // Further sizes are left out; the number above counts them all the same.
  for (size_t i = 0; i < std::min(shape->size(), kMaxSizes); ++i) {
    AppendVarint((*shape)[i].get<uint64_t>(), bytes);
  }
}

// RECORD_FORMAT.md, "Tensors in calls".
std::string TensorBytes(const std::string& type, const json& tensor) {
  const auto dtype = tensor.find("dtype");
  const std::string name = dtype != tensor.end() && dtype->is_string()
                               ? dtype->get<std::string>()
                               : "";
  // Five bytes: dtype, kind of device, its index, layout, autograd flags. A
  // trace records neither the index nor the layout.
  std::string bytes = {static_cast<char>(DtypeOfName(name)),
                       static_cast<char>(DeviceOf(type, tensor)),
                       static_cast<char>(-1), static_cast<char>(kUnknownNumber),
                       static_cast<char>(AutogradFlags(tensor))};
  AppendVarint(Identity(tensor), &bytes);
  AppendSizes(tensor, &bytes);
  return bytes;
}

void Search(const json& value, GradFnSearch* search) {
  if (!value.is_object() || value.size() != 1) return;
  const auto typed = value.begin();
  if (!typed.value().is_object() || !IsTensorClass(typed.key())) return;
  const auto has_grad_fn = HasGradFn(typed.value());
  if (!has_grad_fn) return;
  search->searched = true;
  search->found |= *has_grad_fn;
}

}  // namespace

void TraceValues::Argument(const std::string& name, const json& value) {
  if (full_) return;
  // A definition can be written meanwhile: it goes to a ring of its own, and
  // this record is still in its buffer.
  const uint32_t id = definitions_.String(name);
  const size_t from = out_.position();
  out_.Unsigned(Field::kArgumentName, id);
  // A value in no form of TrainCheck's leaves nothing behind, not even its
  // name: a name without a value would be malformed.
  if (!Value(name, value)) return out_.Rewind(from);
  Finish(from);
}

void TraceValues::Result(const json& value) {
  const size_t from = out_.position();
  out_.Unsigned(Field::kReturn, 0);
  if (value.is_array()) {
    Tuple(value);
  } else if (!Value("", value)) {
    return out_.Rewind(from);
  }
  Finish(from);
}

// Takes a value back that did not fit.
void TraceValues::Finish(size_t from) {
  if (out_.fits()) return;
  full_ = true;
  out_.Rewind(from);
  // What is cut is unknown to a reader; without the flag it would count as not
  // given.
  out_.Unsigned(Field::kContentCut, 1);
  if (!out_.fits()) out_.Rewind(from);
}

bool TraceValues::Value(const std::string& name, const json& value) {
  if (!value.is_object() || value.size() != 1) return false;
  const Typed typed{value.begin().key(), value.begin().value()};
  if (Plain(name, typed)) return true;
  // What is left is a container, or an object whose fields a record has no
  // place for.
  if (typed.value.is_array()) {
    List(typed.type, typed.value);
  } else if (typed.type == "dict" && typed.value.is_object() &&
             !typed.value.empty()) {
    Mapping(typed.type, typed.value);
  } else {
    Type(typed.type);
  }
  return true;
}

// One field for a value without parts. What is a secret by the name of its
// argument is recorded as type and length.
bool TraceValues::Plain(const std::string& name, const Typed& typed) {
  const auto [type, value] = typed;
  // A text, but not of the user: it is recorded whatever the argument is
  // called.
  const bool constant =
      std::find(std::begin(kTorchConstants), std::end(kTorchConstants), type) !=
      std::end(kTorchConstants);
  // The value decides before its type: null is None under any type.
  if (value.is_null()) {
    out_.Unsigned(Field::kValueNone, 0);
  } else if (value.is_boolean()) {
    out_.Unsigned(Field::kValueBool, value.get<bool>());
  } else if (value.is_number()) {
    Number(value);
  } else if (value.is_string() && constant) {
    out_.Unsigned(Field::kValueString,
                  definitions_.String(value.get<std::string>()));
  } else if (value.is_string()) {
    Text(name, type, value.get_ref<const std::string&>());
  } else if (value.is_object() && IsTensorClass(type)) {
    Tensor(typed);
  } else {
    return false;
  }
  return true;
}

// An integer that no signed 64 bits hold is a double, as the agent records it.
void TraceValues::Number(const json& number) {
  if (number.is_number_float()) {
    out_.Double(Field::kValueDouble, number.get<double>());
  } else if (number.is_number_unsigned() &&
             number.get<uint64_t>() >
                 static_cast<uint64_t>(std::numeric_limits<int64_t>::max())) {
    out_.Double(Field::kValueDouble, number.get<double>());
  } else {
    out_.Signed(Field::kValueSigned, number.get<int64_t>());
  }
}

void TraceValues::Text(const std::string& name, const std::string& type,
                       const std::string& text) {
  if (text.size() <= kMaxTextBytes && !IsSecret(name)) {
    out_.Unsigned(Field::kValueString, definitions_.String(text));
    return;
  }
  Type(type);
  out_.Unsigned(Field::kValueLength, text.size());
}

void TraceValues::Tensor(const Typed& typed) {
  out_.Bytes(Field::kValueTensor, TensorBytes(typed.type, typed.value));
}

void TraceValues::Type(const std::string& type) {
  out_.Unsigned(Field::kValueType, definitions_.String(OurFunctionName(type)));
}

// A tuple that was returned is a list of typed values.
void TraceValues::Tuple(const json& elements) {
  Type("tuple");
  out_.Unsigned(Field::kValueLength, elements.size());
  for (size_t i = 0; i < std::min(elements.size(), kMaxElements); ++i) {
    const json& element = elements[i];
    if (!element.is_object() || element.size() != 1) continue;
    out_.Unsigned(Field::kElement, i);
    const Typed typed{element.begin().key(), element.begin().value()};
    // Without a name, so that no text among the elements counts as a secret.
    if (!Plain("", typed)) Type(typed.type);
  }
}

void TraceValues::List(const std::string& type, const json& elements) {
  Type(type);
  out_.Unsigned(Field::kValueLength, elements.size());
  for (size_t i = 0; i < std::min(elements.size(), kMaxElements); ++i) {
    // Elements have no elements of their own in a record.
    if (elements[i].is_structured()) continue;
    out_.Unsigned(Field::kElement, i);
    Element("", elements[i]);
  }
}

void TraceValues::Mapping(const std::string& type, const json& entries) {
  Type(type);
  out_.Unsigned(Field::kValueLength, entries.size());
  size_t told = 0;
  for (const auto& [key, value] : entries.items()) {
    if (told == kMaxElements) return;
    if (value.is_structured()) continue;
    ++told;
    // The cut may divide a character; a reader repairs what is not UTF-8.
    out_.Unsigned(Field::kElementKey,
                  definitions_.String(key.substr(0, kMaxTextBytes)));
    Element(key, value);
  }
}

// Elements come without their types.
void TraceValues::Element(const std::string& name, const json& value) {
  static const auto* const kStr = new std::string("str");
  Plain(name, {*kStr, value});
}

GradFnSearch FindGradFn(const json& result) {
  GradFnSearch search;
  // A list is what JSON made of a tuple of results.
  if (result.is_array()) {
    for (const json& element : result) Search(element, &search);
  } else {
    Search(result, &search);
  }
  return search;
}

}  // namespace traincheck
