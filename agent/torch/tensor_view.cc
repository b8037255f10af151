#include "agent/torch/tensor_view.h"

#include <utility>

#include "agent/torch/tensor_descriptor.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Names of attributes, made once.
struct Names {
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* grad = PyUnicode_InternFromString("grad");
  PyObject* is_leaf = PyUnicode_InternFromString("is_leaf");
  PyObject* local_tensor = PyUnicode_InternFromString("_local_tensor");
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* retains_grad = PyUnicode_InternFromString("retains_grad");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* version = PyUnicode_InternFromString("_version");

  static const Names& Get() {
    static const auto* names = new Names;
    return *names;
  }
};

bool IsTrue(const Ref& value) { return value.get() == Py_True; }

std::string TextOf(PyObject* object) {
  if (object == nullptr) return "";
  const Ref text(PyObject_Str(object));
  if (!text) DropException();
  return std::string(Utf8(text.get()));
}

// A tuple (torch.Size, strides) of integers. None: it is something else.
std::optional<std::vector<int64_t>> Integers(PyObject* tuple) {
  if (tuple == nullptr || !PyTuple_Check(tuple)) return std::nullopt;
  std::vector<int64_t> values;
  const Py_ssize_t size = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < size; ++i) {
    values.push_back(PyLong_AsLongLong(PyTuple_GetItem(tuple, i)));
  }
  if (PyErr_Occurred() != nullptr) {
    DropException();
    return std::nullopt;
  }
  return values;
}

}  // namespace

namespace {

// None: not a strided tensor with bytes of its own that all lie within its
// storage.
std::optional<StridedContent> ContentOf(PyObject* tensor,
                                        const TensorDescriptor& facts) {
  if (facts.strides == nullptr || facts.storage == nullptr) return std::nullopt;
  auto content =
      StridedContent::Of({facts.data, facts.dtype, facts.ndim, facts.sizes,
                          facts.strides, facts.negative, facts.conjugate});
  // An empty content has no memory, so its storage need not be checked.
  if (!content || content->bytes() == 0) return content;
  // A storage may have been freed under its tensor (FSDP does it).
  const auto storage = StorageOf(tensor, facts);
  if (!storage || facts.data == nullptr) return std::nullopt;
  // `begin` counts from the storage's start; `extent` reaches to the end of the
  // last element.
  const uint64_t begin =
      static_cast<uint64_t>(storage->offset) * DtypeBytes(facts.dtype);
  // A storage that was made smaller under its tensor ends before the tensor
  // does.
  if (begin + content->extent() > static_cast<uint64_t>(storage->bytes)) {
    return std::nullopt;
  }
  return content;
}

}  // namespace

// Only memory of the CPU may be read here; an address on a device would raise
// SIGSEGV.
std::optional<TensorView> TensorView::Of(PyObject* tensor) {
  TensorDescriptor facts;
  if (!Describe(tensor, &facts) || facts.device_type != kDeviceCpu) {
    return std::nullopt;
  }
  auto content = ContentOf(tensor, facts);
  return content ? std::optional(TensorView(*std::move(content)))
                 : std::nullopt;
}

std::optional<DeviceView> DeviceView::Of(PyObject* tensor,
                                         bool cpu_for_testing) {
  TensorDescriptor facts;
  if (!Describe(tensor, &facts)) return std::nullopt;
  const bool for_testing = cpu_for_testing && facts.device_type == kDeviceCpu;
  if (facts.device_type != kDeviceCuda && !for_testing) return std::nullopt;
  auto content = ContentOf(tensor, facts);
  if (!content) return std::nullopt;
  return DeviceView{for_testing ? 0 : facts.device_index, *std::move(content)};
}

TensorFacts FactsOf(PyObject* tensor) {
  const Names& names = Names::Get();
  TensorFacts facts;
  facts.dtype = TextOf(Attribute(tensor, names.dtype).get());
  facts.device = TextOf(Attribute(tensor, names.device).get());
  facts.shape = Integers(Attribute(tensor, names.shape).get())
                    .value_or(std::vector<int64_t>());
  facts.requires_grad = RequiresGrad(tensor);
  return facts;
}

// Replicas of a DTensor hold different shards. The whole would need
// communication, so the local part alone is looked at.
Ref LocalTensor(PyObject* tensor) {
  if (TorchApi::IsPlainTensor(tensor) || !TorchApi::IsTensor(tensor)) {
    return Ref::Borrow(tensor);
  }
  // An attribute of the instance: reading it gathers nothing.
  Ref local = Attribute(tensor, Names::Get().local_tensor);
  return local ? std::move(local) : Ref::Borrow(tensor);
}

bool IsLeaf(PyObject* tensor) {
  return IsTrue(Attribute(tensor, Names::Get().is_leaf));
}

bool RequiresGrad(PyObject* tensor) {
  return IsTrue(Attribute(tensor, Names::Get().requires_grad));
}

// Torch raises the version at each in-place write, which finds writes without
// reading the content.
std::optional<uint64_t> VersionOf(PyObject* tensor) {
  const Ref version = Attribute(tensor, Names::Get().version);
  if (!version || !PyLong_Check(version.get())) return std::nullopt;
  return PyLong_AsUnsignedLongLongMask(version.get());
}

Ref GradOf(PyObject* tensor) { return GradOf(tensor, IsLeaf(tensor)); }

Ref GradOf(PyObject* tensor, bool is_leaf) {
  const Names& names = Names::Get();
  // Asking a tensor that is not a leaf for its .grad prints a warning of
  // torch's.
  if (!is_leaf && !IsTrue(Attribute(tensor, names.retains_grad))) {
    return Ref::Borrow(Py_None);
  }
  return Attribute(tensor, names.grad);
}

}  // namespace traincheck::agent
