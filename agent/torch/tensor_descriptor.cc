#include "agent/torch/tensor_descriptor.h"

#include "agent/torch/tensor_attributes.h"
#include "agent/torch/tensor_shim.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {

// The shim takes most tensors. The special ones, and all of them where the shim
// was not bound, go by way of Python.
bool Describe(PyObject* object, TensorDescriptor* tensor) {
  if (!TorchApi::IsTensor(object)) return false;
  if (TensorShim::Describe(object, tensor)) return true;
  // An exception in flight is the user's, and the attributes below clear what
  // they meet.
  const SavedException exception;
  const TorchApi::WithoutOverrides direct;
  DescribeByAttributes(object, tensor);
  return true;
}

// Asked right before memory is read: FSDP frees storages under living tensors.
std::optional<StorageExtent> StorageOf(PyObject* object,
                                       const TensorDescriptor& tensor) {
  if (tensor.storage == nullptr) return std::nullopt;
  if (const auto extent = TensorShim::StorageOf(object)) return extent;
  const SavedException exception;
  const TorchApi::WithoutOverrides direct;
  return StorageByAttributes(object);
}

}  // namespace traincheck::agent
