// A Python extension that shows tensor descriptors to the tests and times them.
#include <algorithm>
#include <chrono>
#include <string>

#include "agent/torch/tensor_descriptor.h"
#include "agent/torch/tensor_shim.h"
#include "agent/torch/torch_api.h"

namespace traincheck {
namespace {

PyObject* Bind(PyObject*, PyObject* torch) {
  std::string missing = TorchApi::Bind(torch);
  if (missing.empty()) missing = TensorShim::Bind(torch);
  return PyUnicode_FromString(missing.c_str());
}

PyObject* UseShim(PyObject*, PyObject* use) {
  return PyBool_FromLong(TensorShim::UseForTesting(use == Py_True));
}

Ref Numbers(const int64_t* numbers, int32_t count) {
  if (numbers == nullptr) return Ref::Borrow(Py_None);
  Ref tuple(PyTuple_New(count));
  for (int32_t i = 0; i < count; ++i) {
    PyTuple_SetItem(tuple.get(), i, PyLong_FromLongLong(numbers[i]));
  }
  return tuple;
}

// None where it is no tensor.
PyObject* DescribeObject(PyObject*, PyObject* object) {
  TensorDescriptor t;
  if (!Describe(object, &t)) Py_RETURN_NONE;
  const auto extent = StorageOf(object, t).value_or(StorageExtent{-1, -1});
  const auto size = [](const void* address) {
    return static_cast<unsigned long long>(
        reinterpret_cast<uintptr_t>(address));
  };
  return Py_BuildValue(
      "{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:N,s:N,s:K,s:K,s:L,s:L}", "dtype",
      static_cast<int>(t.dtype), "device_type", t.device_type, "device_index",
      t.device_index, "layout", t.layout, "negative", t.negative, "conjugate",
      t.conjugate, "ndim", t.ndim, "sizes", Numbers(t.sizes, t.ndim).Release(),
      "strides", Numbers(t.strides, t.ndim).Release(), "data", size(t.data),
      "storage", size(t.storage), "storage_bytes",
      static_cast<long long>(extent.bytes), "offset",
      static_cast<long long>(extent.offset));
}

// Nanoseconds of one Describe: the best of many batches, because other
// programs take the processor in between.
PyObject* TimeDescribe(PyObject*, PyObject* object) {
  constexpr int kBatches = 1000, kCalls = 1000;
  TensorDescriptor t;
  double best = 1e9;
  for (int batch = 0; batch < kBatches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < kCalls; ++i) Describe(object, &t);
    const std::chrono::duration<double, std::nano> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / kCalls);
  }
  return PyFloat_FromDouble(best);
}

PyMethodDef kMethods[] = {
    {"bind", Bind, METH_O, nullptr},
    {"use_shim", UseShim, METH_O, nullptr},
    {"describe", DescribeObject, METH_O, nullptr},
    {"time_describe", TimeDescribe, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef kModule = {
    PyModuleDef_HEAD_INIT,
    "tensor_for_testing",
    nullptr,
    -1,
    kMethods,
    nullptr,
    nullptr,
    nullptr,
    nullptr,
};

}  // namespace
}  // namespace traincheck

PyMODINIT_FUNC PyInit_tensor_for_testing() {
  return PyModule_Create(&traincheck::kModule);
}
