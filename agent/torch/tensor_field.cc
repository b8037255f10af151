#include "agent/torch/tensor_field.h"

#include <algorithm>
#include <cstdint>

#include "agent/torch/storage_identity.h"
#include "agent/torch/tensor_descriptor.h"
#include "proto/record_format.h"
#include "proto/varint.h"

namespace traincheck::agent {
namespace {

// Runs no code of the user's: overrides of tensors are switched off by the
// caller.
uint8_t AutogradFlags(PyObject* tensor) {
  static PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  static PyObject* is_leaf = PyUnicode_InternFromString("is_leaf");
  uint8_t flags = kTensorAutogradKnown;
  if (Attribute(tensor, requires_grad).get() == Py_True) {
    flags |= kTensorRequiresGrad;
    // A tensor that needs no gradient is a leaf, so most are asked one
    // question.
    if (Attribute(tensor, is_leaf).get() == Py_False) flags |= kTensorHasGradFn;
  }
  return flags;
}

}  // namespace

// Layout of the field: five bytes, the storage's number, ndim + 1, then sizes.
size_t EncodeTensor(PyObject* object, bool autograd, char* out) {
  TensorDescriptor tensor;
  Describe(object, &tensor);
  char* at = out;
  *at++ = static_cast<char>(tensor.dtype);
  *at++ = static_cast<char>(tensor.device_type);
  *at++ = static_cast<char>(tensor.device_index);
  *at++ = static_cast<char>(tensor.layout);
  *at++ = static_cast<char>(autograd ? AutogradFlags(object) : 0);
  at = PutVarint(StorageNumber(object, tensor.storage), at);
  // One more than ndim: 0 is "not known".
  at = PutVarint(static_cast<uint64_t>(tensor.ndim + 1), at);
  // Records are bounded: sizes beyond the eighth are left out, ndim still says
  // how many there are.
  const int told = std::min<int>(tensor.ndim, kMaxFieldDimensions);
  for (int i = 0; i < told; ++i) {
    at = PutVarint(static_cast<uint64_t>(tensor.sizes[i]), at);
  }
  return static_cast<size_t>(at - out);
}

}  // namespace traincheck::agent
