// A dense CPU tensor's bytes and shape, read through Python attributes
// (about 0.7 us a tensor).
//
// REQUIRES for all: a TorchApi::WithoutOverrides lives.
// Threads: GIL held, but for Digest.
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "agent/capture/python_ref.h"

namespace traincheck {

struct ContentDigest {
  uint64_t digest = 0;
  bool all_zero = false;  // also of a tensor without elements
};

// Valid as long as the tensor keeps its storage.
class TensorView {
 public:
  // None: no dense tensor in this process's memory (another device, sparse,
  // quantised, meta, a subclass without bytes of its own, freed, ...).
  static std::optional<TensorView> Of(PyObject* tensor);

  uint64_t bytes() const { return bytes_; }

  // Threads: any; the GIL may be released while it runs.
  ContentDigest Digest() const;

 private:
  struct Dimension {
    int64_t size;
    int64_t stride_bytes;
  };

  bool ReadShape(PyObject* tensor);
  bool FitsStorage(PyObject* tensor) const;

  const char* data_ = nullptr;
  uint64_t bytes_ = 0;  // of the elements, in logical order
  int64_t element_bytes_ = 0;
  const std::string* dtype_ = nullptr;  // lives for ever
  std::vector<Dimension> dimensions_;   // outermost first, merged where dense
};

// What a VariableDef says of a tensor. Unknown: empty, false.
struct TensorFacts {
  std::string dtype;   // "torch.float32"
  std::string device;  // "cpu", "cuda:0"
  std::vector<int64_t> shape;
  bool requires_grad = false;
};
TensorFacts FactsOf(PyObject* tensor);

// Of any tensor.
bool IsLeaf(PyObject* tensor);
bool RequiresGrad(PyObject* tensor);
// Its .grad: None where there is none. A tensor that cannot have one is not
// asked, because asking it warns.
Ref GradOf(PyObject* tensor);

}  // namespace traincheck

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_VIEW_H_
