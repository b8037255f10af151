// A Python extension that shows tensor descriptors to the tests and times them.
#include <algorithm>
#include <chrono>
#include <string>

#include "agent/torch/tensor_descriptor.h"
#include "agent/torch/tensor_shim.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

PyObject* Bind(PyObject*, PyObject* torch) {
  std::string missing = TorchApi::Bind(torch);
  if (missing.empty()) missing = TensorShim::Bind(torch);
  return PyUnicode_FromString(missing.c_str());
}

PyObject* UseShim(PyObject*, PyObject* use) {
  return PyBool_FromLong(TensorShim::UseForTesting(use == Py_True));
}

// "": the shim is used.
PyObject* BindShim(PyObject*, PyObject* torch) {
  return PyUnicode_FromString(TensorShim::Bind(torch).c_str());
}

PyObject* ByShim(PyObject*, PyObject* tensor) {
  TensorDescriptor t;
  return PyBool_FromLong(TensorShim::Describe(tensor, &t));
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
      "{s:i,s:s,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:N,s:N,s:K,s:K,s:L,s:L}", "dtype",
      static_cast<int>(t.dtype), "dtype_name",
      std::string(DtypeName(t.dtype)).c_str(), "dtype_bytes",
      DtypeBytes(t.dtype), "device_type", t.device_type, "device_index",
      t.device_index, "layout", t.layout, "negative", t.negative, "conjugate",
      t.conjugate, "ndim", t.ndim, "sizes", Numbers(t.sizes, t.ndim).Release(),
      "strides", Numbers(t.strides, t.ndim).Release(), "data", size(t.data),
      "storage", size(t.storage), "storage_bytes",
      static_cast<long long>(extent.bytes), "offset",
      static_cast<long long>(extent.offset));
}

// Nanoseconds of one run: the best of many batches, because other programs
// take the processor in between.
template <typename Run>
double BestTime(int batches, int runs, const Run& run) {
  double best = 1e9;
  for (int batch = 0; batch < batches; ++batch) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < runs; ++i) run();
    const std::chrono::duration<double, std::nano> time =
        std::chrono::steady_clock::now() - start;
    best = std::min(best, time.count() / runs);
  }
  return best;
}

PyObject* TimeDescribe(PyObject*, PyObject* object) {
  TensorDescriptor t;
  return PyFloat_FromDouble(
      BestTime(1000, 1000, [&] { Describe(object, &t); }));
}

// (digest, all zero, statistics or None, digests of rows), or None.
PyObject* Summarize(PyObject*, PyObject* tensor) {
  const TorchApi::WithoutOverrides direct;
  const auto view = TensorView::Of(tensor);
  if (!view) Py_RETURN_NONE;
  const ContentSummary summary = view->Summarize({true, true});
  Ref rows(PyList_New(0));
  for (const uint64_t digest : summary.rows) {
    const Ref number(PyLong_FromUnsignedLongLong(digest));
    PyList_Append(rows.get(), number.get());
  }
  Ref numbers = Ref::Borrow(Py_None);
  if (const auto& found = summary.statistics) {
    numbers = Ref(Py_BuildValue("ddKK", found->norm, found->absmax,
                                found->nan_count, found->inf_count));
  }
  return Py_BuildValue("KiNN", summary.content.digest, summary.content.all_zero,
                       numbers.Release(), rows.Release());
}

PyObject* DigestObject(PyObject*, PyObject* tensor) {
  const TorchApi::WithoutOverrides direct;
  const auto view = TensorView::Of(tensor);
  if (!view) Py_RETURN_NONE;
  return PyLong_FromUnsignedLongLong(view->Digest().digest);
}

// Nanoseconds of one digest of a tensor, all included.
PyObject* TimeDigest(PyObject*, PyObject* tensor) {
  const TorchApi::WithoutOverrides direct;
  uint64_t sum = 0;
  const double best = BestTime(
      200, 200, [&] { sum += TensorView::Of(tensor)->Digest().digest; });
  return Py_BuildValue("dK", best, static_cast<unsigned long long>(sum));
}

PyMethodDef kMethods[] = {
    {"bind", Bind, METH_O, nullptr},
    {"use_shim", UseShim, METH_O, nullptr},
    {"bind_shim", BindShim, METH_O, nullptr},
    {"by_shim", ByShim, METH_O, nullptr},
    {"describe", DescribeObject, METH_O, nullptr},
    {"digest", DigestObject, METH_O, nullptr},
    {"summarize", Summarize, METH_O, nullptr},
    {"time_digest", TimeDigest, METH_O, nullptr},
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
}  // namespace traincheck::agent

PyMODINIT_FUNC PyInit_tensor_for_testing() {
  return PyModule_Create(&traincheck::agent::kModule);
}
