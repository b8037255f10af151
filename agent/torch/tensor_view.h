// A tensor's content in this process's memory, and facts of tensors.
//
// REQUIRES for all: a TorchApi::WithoutOverrides lives.
// Threads: GIL held, but for Digest and Summarize.
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "agent/cpython/python_ref.h"
#include "agent/torch/content.h"

namespace traincheck::agent {

// Valid as long as the tensor keeps its storage.
class TensorView {
 public:
  // None: no strided tensor in this process's memory (another device, sparse,
  // meta, a subclass without bytes of its own, freed, ...), or one whose
  // elements are of an unknown type.
  static std::optional<TensorView> Of(PyObject* tensor);

  uint64_t bytes() const { return content_.bytes(); }
  uint64_t rows() const { return content_.rows(); }
  const void* data() const { return content_.data(); }

  // Threads: any; the GIL may be released while they run.
  ContentDigest Digest() const { return content_.Digest(); }
  ContentSummary Summarize(ContentWanted wanted) const {
    return content_.Summarize(wanted);
  }
  std::optional<ContentSample> Sample() const { return content_.Sample(); }

 private:
  explicit TensorView(StridedContent content) : content_(std::move(content)) {}

  StridedContent content_;
};

// A strided tensor in the memory of a CUDA device, where this process cannot
// read it: only where it lies.
struct DeviceView {
  int device = 0;
  StridedContent content;

  // None: as TensorView::Of says, or it is not in such memory. While
  // `cpu_for_testing`, a tensor in this process's memory is on device 0.
  static std::optional<DeviceView> Of(PyObject* tensor, bool cpu_for_testing);
};

// What a VariableDef says of a tensor. Unknown: empty, false.
struct TensorFacts {
  std::string dtype;   // "torch.float32"
  std::string device;  // "cpu", "cuda:0"
  std::vector<int64_t> shape;
  bool requires_grad = false;
};
TensorFacts FactsOf(PyObject* tensor);

// The part of a DTensor that this process holds; any other value itself.
Ref LocalTensor(PyObject* tensor);

// Of any tensor.
bool IsLeaf(PyObject* tensor);
bool RequiresGrad(PyObject* tensor);
// Counts the writes to its memory that torch knows of. None: nothing counts
// them (inference mode).
std::optional<uint64_t> VersionOf(PyObject* tensor);
// Its .grad: None where there is none. A tensor that cannot have one is not
// asked, because asking it warns.
Ref GradOf(PyObject* tensor);
Ref GradOf(PyObject* tensor, bool is_leaf);  // for who has asked

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_
