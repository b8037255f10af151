// A tensor described through its Python attributes: about 1 us, for every
// tensor and every torch.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_ATTRIBUTES_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_ATTRIBUTES_H_

#include <optional>

#include "agent/torch/tensor_descriptor.h"

namespace traincheck::agent {

// Of any tensor; what a tensor does not tell stays unknown. REQUIRES: a
// TorchApi::WithoutOverrides lives.
void DescribeByAttributes(PyObject* tensor, TensorDescriptor* descriptor);
std::optional<StorageExtent> StorageByAttributes(PyObject* tensor);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_ATTRIBUTES_H_
