// torch's AOTI C shim: functions with a C interface, the same in all versions,
// that read an at::Tensor in a few nanoseconds each.
//
// A handle of the shim is a pointer to an at::Tensor, which is one word: the
// address of its TensorImpl. A Python tensor holds one among its words. Which
// one it is, and where a TensorImpl keeps its storage and its dispatch keys, is
// found at load by looking for numbers that Python tells
// (tensor._cdata, untyped_storage()._cdata, _dispatch_keys) in the words of
// sample tensors of several kinds and classes. One word must fit all samples,
// and every sample must then be described as Python attributes do; else the
// shim is not used.
//
//   PyObject: refcount | type | at::Tensor | ...
//                                   |
//   TensorImpl: vtable | refcounts | storage | ... | dispatch keys | ...
//
// The dispatch keys say whether a tensor is a plain one. Special ones
// (functorch, sparse, nested, wrappers with __torch_dispatch__) are never given
// to the shim: it would write their errors to stderr.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_TORCH_TENSOR_SHIM_H_
#define TRAINCHECK_AGENT_TORCH_TENSOR_SHIM_H_

#include <cstdint>
#include <string>

#include "agent/torch/tensor_descriptor.h"

namespace traincheck::agent {

class TensorShim {
 public:
  // Once, after torch has been imported. "": the shim is used; else why not.
  static std::string Bind(PyObject* torch);

  // Switches it off and on again; on only where Bind succeeded. Says whether
  // it is on now.
  static bool UseForTesting(bool use);

  // False: not bound, or a special tensor. REQUIRES: `object` is a tensor.
  static bool Describe(PyObject* object, TensorDescriptor* tensor);
  static std::optional<StorageExtent> StorageOf(PyObject* object);

 private:
  using GetPointer = int32_t (*)(const void* tensor, void** value);
  using GetLong = int32_t (*)(const void* tensor, int64_t* value);
  using GetInt = int32_t (*)(const void* tensor, int32_t* value);

  static TensorShim& Get();
  std::string FindFunctions(PyObject* addresses);
  std::string FindWords(PyObject* samples);
  std::string CompareWithPython(PyObject* samples);
  // The handle of a plain tensor, or null.
  const void* PlainHandle(PyObject* object) const;

  bool on_ = false;
  bool bound_ = false;
  // Byte offsets.
  uint32_t handle_at_ = 0;
  uint32_t storage_at_ = 0;
  uint32_t keys_at_ = 0;
  uint64_t plain_keys_ = 0;  // a tensor with any other is special
  uint64_t negative_key_ = 0;
  uint64_t conjugate_key_ = 0;
  uint64_t cpu_key_ = 0;       // of the backends: alone on tensors of the CPU,
  uint64_t backend_keys_ = 0;  // whose device needs no question then

  GetLong dim_ = nullptr;
  GetPointer sizes_ = nullptr;
  GetPointer strides_ = nullptr;
  GetInt dtype_ = nullptr;
  GetInt device_type_ = nullptr;
  GetInt device_index_ = nullptr;
  GetPointer data_ = nullptr;
  GetLong storage_size_ = nullptr;
  GetLong storage_offset_ = nullptr;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_TENSOR_SHIM_H_
