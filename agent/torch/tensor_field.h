// A tensor as the bytes of a kValueTensor field: RECORD_FORMAT.md, "Tensors in
// calls".
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_FIELD_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_FIELD_H_

#include <cstddef>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// Sizes beyond this many are left out.
inline constexpr int kMaxFieldDimensions = 8;
inline constexpr size_t kMaxTensorFieldBytes = 16 + 10 * kMaxFieldDimensions;

// How many bytes were put into `out` (at least kMaxTensorFieldBytes). With
// `autograd` also whether the tensor requires a gradient and has a grad_fn,
// which are Python attributes, 35 ns each.
// REQUIRES: `tensor` is a tensor; with `autograd`, a TorchApi::WithoutOverrides
// lives.
size_t EncodeTensor(PyObject* tensor, bool autograd, char* out);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_FIELD_H_
