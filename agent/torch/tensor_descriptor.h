// What a tensor is, in one cheap call: type, device, layout, shape, address and
// identity. About 17 ns by torch's C shim (tensor_shim.h), about 1 us by Python
// attributes where the shim is missing or the tensor is a special one. Both
// ways give the same descriptor.
//
// Nothing here changes the tensor, its version, autograd, generators or modes;
// no __torch_function__ of a subclass or a mode runs.
// Threads: GIL held.
//
// Example:
//   TensorDescriptor tensor;
//   if (!Describe(object, &tensor)) return;  // no tensor
//   Append(tensor.dtype, tensor.sizes, tensor.ndim);
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_DESCRIPTOR_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_DESCRIPTOR_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "agent/cpython/python_ref.h"
#include "proto/torch_types.h"

namespace traincheck::agent {

// Valid while the tensor is kept alive and nobody changes its shape: within
// the call that is being recorded. Use it again for the next tensor.
struct TensorDescriptor {
  Dtype dtype = Dtype::kUnknown;
  uint8_t device_type = kUnknownNumber;  // c10::DeviceType
  int8_t device_index = -1;              // -1: the device has none
  uint8_t layout = kUnknownNumber;       // c10::Layout
  // Elements are negated or conjugated only when they are read.
  bool negative = false;
  bool conjugate = false;
  int32_t ndim = -1;                 // -1: it has no sizes (C++ nested tensors)
  const int64_t* sizes = nullptr;    // ndim of them
  const int64_t* strides = nullptr;  // in elements; null: not strided
  // Of the first element. Null where the tensor has no bytes of its own
  // (sparse, meta, wrappers, FakeTensor, DTensor) or no elements. A storage may
  // have been freed under its tensor: ask StorageOf before reading.
  const void* data = nullptr;
  // The StorageImpl: equal for views of the same memory, null where there is
  // none. An address is reused after its storage has died.
  const void* storage = nullptr;

  // Set where the numbers do not come from torch's own memory.
  std::vector<int64_t> own_dimensions;
};

// False: `object` is no tensor, and `tensor` is as it was.
bool Describe(PyObject* object, TensorDescriptor* tensor);

// The extent of a tensor's storage. None: it has none that can be asked.
struct StorageExtent {
  int64_t bytes = 0;
  int64_t offset = 0;  // of the tensor's first element, in elements
};
std::optional<StorageExtent> StorageOf(PyObject* object,
                                       const TensorDescriptor& tensor);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_DESCRIPTOR_H_
