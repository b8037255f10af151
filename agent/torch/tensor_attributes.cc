#include "agent/torch/tensor_attributes.h"

#include <string_view>
#include <utility>

#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

constexpr size_t kMaxDimensions = 64;  // torch's own limit

// Names of attributes, made once.
struct Names {
  PyObject* cdata = PyUnicode_InternFromString("_cdata");
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* index = PyUnicode_InternFromString("index");
  PyObject* is_conj = PyUnicode_InternFromString("is_conj");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* nbytes = PyUnicode_InternFromString("nbytes");
  PyObject* size = PyUnicode_InternFromString("size");
  PyObject* storage_offset = PyUnicode_InternFromString("storage_offset");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* type = PyUnicode_InternFromString("type");
  PyObject* untyped_storage = PyUnicode_InternFromString("untyped_storage");

  static const Names& Get() {
    static const auto* names = new Names;
    return *names;
  }
};

// The number of a dtype or layout object by how it prints, as the record format
// numbers them. The objects are few and live for ever, so a linear search by
// identity suffices.
template <typename Find>
uint8_t NumberOfObject(Ref object, std::vector<std::pair<Ref, uint8_t>>* known,
                       const Find& find) {
  if (!object) return kUnknownNumber;
  for (const auto& [other, number] : *known) {
    if (other.get() == object.get()) return number;
  }
  const Ref text(PyObject_Str(object.get()));
  if (!text) {  // interrupted by a signal handler
    DropException();
    return kUnknownNumber;
  }
  known->emplace_back(std::move(object), find(Utf8(text.get())));
  return known->back().second;
}

Dtype ReadDtype(PyObject* tensor) {
  static auto* known = new std::vector<std::pair<Ref, uint8_t>>;
  return static_cast<Dtype>(NumberOfObject(
      Attribute(tensor, Names::Get().dtype), known, [](std::string_view name) {
        return static_cast<uint8_t>(DtypeOfName(name));
      }));
}

uint8_t ReadLayout(PyObject* tensor) {
  static auto* known = new std::vector<std::pair<Ref, uint8_t>>;
  return NumberOfObject(Attribute(tensor, Names::Get().layout), known,
                        LayoutOfName);
}

// An integer, or none. Addresses are unsigned; all 64 bits are wanted.
std::optional<int64_t> Integer(const Ref& value) {
  if (!value || !PyLong_Check(value.get())) return std::nullopt;
  const uint64_t number = PyLong_AsUnsignedLongLongMask(value.get());
  if (PyErr_Occurred() != nullptr) {
    DropException();
    return std::nullopt;
  }
  return static_cast<int64_t>(number);
}

// A missing or strange value reads as null, which callers take for "no memory
// to read".
const void* Address(const Ref& value) {
  return reinterpret_cast<const void*>(Integer(value).value_or(0));
}

bool IsTrue(const Ref& value) { return value.get() == Py_True; }

// Appends a tuple (torch.Size, strides) of integers. False: it is something
// else.
bool AppendIntegers(PyObject* tuple, std::vector<int64_t>* values) {
  if (tuple == nullptr || !PyTuple_Check(tuple)) return false;
  const Py_ssize_t size = PyTuple_Size(tuple);
  if (static_cast<size_t>(size) > kMaxDimensions) return false;
  for (Py_ssize_t i = 0; i < size; ++i) {
    const auto value = Integer(Ref::Borrow(PyTuple_GetItem(tuple, i)));
    if (!value) return false;  // symbolic
    values->push_back(*value);
  }
  return true;
}

void ReadDevice(PyObject* tensor, TensorDescriptor* descriptor) {
  const Names& names = Names::Get();
  const Ref device = Attribute(tensor, names.device);
  if (!device) return;
  const Ref type = Attribute(device.get(), names.type);
  descriptor->device_type = DeviceTypeOfName(Utf8(type.get()));
  // The CPU has no index: None is not an integer.
  descriptor->device_index = static_cast<int8_t>(
      Integer(Attribute(device.get(), names.index)).value_or(-1));
}

void ReadDimensions(PyObject* tensor, TensorDescriptor* descriptor) {
  const Names& names = Names::Get();
  std::vector<int64_t>& own = descriptor->own_dimensions;
  own.reserve(8);  // an address also where there are no dimensions
  if (!AppendIntegers(CallMethod(tensor, names.size).get(), &own)) return;
  const size_t ndim = own.size();
  // Other layouts have no strides, and some raise where they are asked for
  // them.
  const bool has_strides =
      descriptor->layout == kLayoutStrided &&
      AppendIntegers(CallMethod(tensor, names.stride).get(), &own) &&
      own.size() == 2 * ndim;
  descriptor->ndim = static_cast<int32_t>(ndim);
  descriptor->sizes = own.data();
  descriptor->strides = has_strides ? own.data() + ndim : nullptr;
}

}  // namespace

// Everything that torch's attributes say. What raises stays unknown: one tensor
// class that refuses a question must not lose the others.
void DescribeByAttributes(PyObject* tensor, TensorDescriptor* descriptor) {
  const Names& names = Names::Get();
  *descriptor = TensorDescriptor();
  descriptor->dtype = ReadDtype(tensor);
  descriptor->layout = ReadLayout(tensor);
  ReadDevice(tensor, descriptor);
  ReadDimensions(tensor, descriptor);
  descriptor->negative = IsTrue(CallMethod(tensor, names.is_neg));
  descriptor->conjugate = IsTrue(CallMethod(tensor, names.is_conj));
  // Others may have an inner tensor's storage, or one that must not be asked.
  if (descriptor->strides == nullptr || !TorchApi::IsPlainTensor(tensor)) {
    return;
  }
  const Ref storage = CallMethod(tensor, names.untyped_storage);
  if (!storage) return;
  descriptor->storage = Address(Attribute(storage.get(), names.cdata));
  descriptor->data = Address(CallMethod(tensor, names.data_ptr));
}

std::optional<StorageExtent> StorageByAttributes(PyObject* tensor) {
  const Names& names = Names::Get();
  const Ref storage = CallMethod(tensor, names.untyped_storage);
  if (!storage) return std::nullopt;
  const auto bytes = Integer(CallMethod(storage.get(), names.nbytes));
  const auto offset = Integer(CallMethod(tensor, names.storage_offset));
  if (!bytes || !offset) return std::nullopt;
  return StorageExtent{*bytes, *offset};
}

}  // namespace traincheck::agent
