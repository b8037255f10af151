#include "agent/torch/tensor_shim.h"

#include <malloc.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "agent/torch/shim_probe_source.h"
#include "agent/torch/tensor_attributes.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// A TensorImpl has 22 words or more, depending on the version of torch. The
// bounds keep the search near the beginning, where torch has kept these fields.
constexpr uint32_t kMaxImplWords = 24;
constexpr uint32_t kMaxObjectWords = 32;

uint64_t WordAt(const void* base, uint32_t byte_offset) {
  uint64_t word;
  std::memcpy(&word, static_cast<const char*>(base) + byte_offset, sizeof word);
  return word;
}

const void* Pointer(uint64_t address) {
  return reinterpret_cast<const void*>(address);
}

// Null and everything that is not an int read as 0, which callers take for
// "missing".
uint64_t Number(PyObject* value) {
  const uint64_t number =
      value == nullptr ? 0 : PyLong_AsUnsignedLongLong(value);
  if (PyErr_Occurred() != nullptr) {
    DropException();
    return 0;
  }
  return number;
}

uint64_t NumberIn(PyObject* dictionary, const char* key) {
  return Number(PyDict_GetItemString(dictionary, key));
}

// One tuple of the probe.
struct Sample {
  explicit Sample(PyObject* tuple)
      : tensor(PyTuple_GetItem(tuple, 0)),
        impl(Pointer(Number(PyTuple_GetItem(tuple, 1)))),
        storage(Number(PyTuple_GetItem(tuple, 2))),
        keys(Number(PyTuple_GetItem(tuple, 3))) {}

  PyObject* tensor;  // borrowed
  const void* impl;
  uint64_t storage;  // 0: none
  uint64_t keys;
};

// Searches the word that has the wanted value in all samples.
class WordSearch {
 public:
  explicit WordSearch(size_t words) : fits_(words, true) {}

  // `bytes` lie at `base`, no more.
  void Take(const void* base, size_t bytes, uint64_t wanted) {
    // No sample is read behind its end: the smallest one bounds the search.
    fits_.resize(std::min(fits_.size(), bytes / sizeof wanted));
    for (uint32_t i = 0; i < fits_.size(); ++i) {
      // A candidate stays only while it fits every sample: samples have
      // different values, so that a chance match in one of them is thrown out
      // by the others.
      if (WordAt(base, i * sizeof wanted) != wanted) fits_[i] = false;
    }
  }
  // False: no word fits, or several do.
  bool Found(uint32_t* byte_offset) const {
    // A second word that fits does so by chance, and nothing says which one
    // that is.
    if (std::count(fits_.begin(), fits_.end(), true) != 1) return false;
    const auto at = std::find(fits_.begin(), fits_.end(), true);
    *byte_offset = static_cast<uint32_t>(at - fits_.begin()) * 8;
    return true;
  }

 private:
  std::vector<bool> fits_;
};

// Runs the embedded module (shim_probe.py) in a namespace of its own and
// returns what its probe(torch) gives; none with an exception in flight.
Ref Probe(PyObject* torch) {
  const Ref code(Py_CompileString(kShimProbeSource[0].text,
                                  "<traincheck shim_probe>", Py_file_input));
  const Ref globals(PyDict_New());
  if (!code || !globals) return Ref();
  PyDict_SetItemString(globals.get(), "__builtins__", PyEval_GetBuiltins());
  const Ref name(PyUnicode_FromString("_traincheck_shim_probe"));
  PyDict_SetItemString(globals.get(), "__name__", name.get());
  const Ref done(PyEval_EvalCode(code.get(), globals.get(), globals.get()));
  PyObject* probe =
      done ? PyDict_GetItemString(globals.get(), "probe") : nullptr;
  if (probe == nullptr) return Ref();
  return Ref(PyObject_CallFunctionObjArgs(probe, torch, nullptr));
}

bool SameNumbers(const int64_t* a, const int64_t* b, int32_t count) {
  if (a == nullptr || b == nullptr) return a == b;
  return std::equal(a, a + count, b);
}

bool Same(const TensorDescriptor& a, const TensorDescriptor& b) {
  return a.dtype == b.dtype && a.device_type == b.device_type &&
         a.device_index == b.device_index && a.layout == b.layout &&
         a.negative == b.negative && a.conjugate == b.conjugate &&
         a.ndim == b.ndim && SameNumbers(a.sizes, b.sizes, a.ndim) &&
         SameNumbers(a.strides, b.strides, a.ndim) && a.data == b.data &&
         a.storage == b.storage;
}

bool Same(const std::optional<StorageExtent>& a,
          const std::optional<StorageExtent>& b) {
  if (!a || !b) return a.has_value() == b.has_value();
  return a->bytes == b->bytes && a->offset == b->offset;
}

}  // namespace

TensorShim& TensorShim::Get() {
  static auto* shim = new TensorShim;
  return *shim;
}

// The probe gives addresses, because C++ would have to link torch to name the
// functions.
std::string TensorShim::FindFunctions(PyObject* addresses) {
  const auto find = [addresses](const char* part, auto* function) {
    const uint64_t address = NumberIn(addresses, part);
    // As bytes, because the functions are of several types.
    std::memcpy(function, &address, sizeof address);
    return address != 0;
  };
  const bool all = find("dim", &dim_) && find("sizes", &sizes_) &&
                   find("strides", &strides_) && find("dtype", &dtype_) &&
                   find("device_type", &device_type_) &&
                   find("device_index", &device_index_) &&
                   find("data", &data_) &&
                   find("storage_size", &storage_size_) &&
                   find("storage_offset", &storage_offset_);
  return all ? "" : "a function of the shim has no address";
}

// Finds the three offsets and takes the numbers of the dispatch keys.
std::string TensorShim::FindWords(PyObject* probed) {
  PyObject* samples = PyDict_GetItemString(probed, "samples");
  const uint64_t object_bytes = NumberIn(probed, "object_bytes");
  if (samples == nullptr || !PyList_Check(samples) || object_bytes == 0) {
    return "the probe has no samples";
  }
  WordSearch handle(kMaxObjectWords);
  WordSearch storage(kMaxImplWords);
  WordSearch keys(kMaxImplWords);
  for (Py_ssize_t i = 0; i < PyList_Size(samples); ++i) {
    const Sample sample(PyList_GetItem(samples, i));
    if (sample.impl == nullptr) return "a sample has no address";
    // The object is read up to its type's basic size and no further.
    handle.Take(sample.tensor, object_bytes,
                reinterpret_cast<uint64_t>(sample.impl));
    // torch makes each by operator new, which takes it from malloc.
    const size_t bytes = malloc_usable_size(const_cast<void*>(sample.impl));
    storage.Take(sample.impl, bytes, sample.storage);
    keys.Take(sample.impl, bytes, sample.keys);
  }
  if (!handle.Found(&handle_at_)) return "no word of the object is its tensor";
  if (!storage.Found(&storage_at_)) return "no word of a tensor is its storage";
  if (!keys.Found(&keys_at_)) return "no word of a tensor is its keys";
  plain_keys_ = NumberIn(probed, "plain_keys");
  negative_key_ = NumberIn(probed, "negative_key");
  conjugate_key_ = NumberIn(probed, "conjugate_key");
  cpu_key_ = NumberIn(probed, "cpu_key");
  backend_keys_ = NumberIn(probed, "backend_keys");
  if (plain_keys_ == 0 || negative_key_ == 0 || conjugate_key_ == 0 ||
      cpu_key_ == 0 || backend_keys_ == 0) {
    return "a dispatch key has no number";
  }
  return "";
}

// The proof that the offsets are right: each sample must read exactly as by its
// attributes.
std::string TensorShim::CompareWithPython(PyObject* samples) {
  const TorchApi::WithoutOverrides direct;
  int plain = 0;
  for (Py_ssize_t i = 0; i < PyList_Size(samples); ++i) {
    const Sample sample(PyList_GetItem(samples, i));
    TensorDescriptor quick;
    // Special samples are left to attributes, as such tensors of programs are.
    if (!Describe(sample.tensor, &quick)) continue;
    ++plain;
    TensorDescriptor slow;
    DescribeByAttributes(sample.tensor, &slow);
    if (!Same(quick, slow) ||
        !Same(StorageOf(sample.tensor), StorageByAttributes(sample.tensor))) {
      return "sample " + std::to_string(i) + " is not what Python says";
    }
  }
  // All but the sparse one.
  if (plain != PyList_Size(samples) - 1) return "plain samples are special";
  return "";
}

// Any failure leaves the shim off, and tensors are then described by
// attributes, which is slower and otherwise the same.
std::string TensorShim::Bind(PyObject* torch) {
  TensorShim& shim = Get();
  shim.on_ = shim.bound_ = false;
  const Ref probed = Probe(torch);
  if (!probed || !PyDict_Check(probed.get())) {
    // The probe's exception becomes the reason in the log and goes no further.
    SavedException exception;
    const Ref text(PyObject_Str(exception.Normalized()));
    const std::string why(Utf8(text.get()));
    if (!text) DropException();
    exception.Forget();
    return "the probe failed: " + why;
  }
  PyObject* functions = PyDict_GetItemString(probed.get(), "functions");
  if (functions == nullptr) return "the probe has no functions";
  std::string why = shim.FindFunctions(functions);
  if (why.empty()) why = shim.FindWords(probed.get());
  if (!why.empty()) return why;
  // Describe is what is compared, and it works only while the shim is on.
  shim.on_ = true;
  why = shim.CompareWithPython(PyDict_GetItemString(probed.get(), "samples"));
  shim.on_ = shim.bound_ = why.empty();
  return why;
}

bool TensorShim::UseForTesting(bool use) {
  TensorShim& shim = Get();
  shim.on_ = use && shim.bound_;
  return shim.on_;
}

// Two loads and a mask on the record path. Keys that are not plain mean a class
// with its own rules (functorch, sparse, a wrapper), which the shim must not
// see.
const void* TensorShim::PlainHandle(PyObject* object) const {
  if (!on_) return nullptr;
  const void* handle = reinterpret_cast<const char*>(object) + handle_at_;
  const void* impl = Pointer(WordAt(handle, 0));
  // Objects that the garbage collector has cleared have none.
  if (impl == nullptr) return nullptr;
  const uint64_t keys = WordAt(impl, keys_at_);
  return (keys & ~plain_keys_) == 0 ? handle : nullptr;
}

bool TensorShim::Describe(PyObject* object, TensorDescriptor* tensor) {
  const TensorShim& shim = Get();
  const void* handle = shim.PlainHandle(object);
  if (handle == nullptr) return false;
  const void* impl = Pointer(WordAt(handle, 0));
  const void* storage = Pointer(WordAt(impl, shim.storage_at_));
  if (storage == nullptr) return false;
  int64_t dim = 0;
  int32_t dtype = 0;
  void *sizes = nullptr, *strides = nullptr, *data = nullptr;
  const int32_t error = shim.dim_(handle, &dim) | shim.sizes_(handle, &sizes) |
                        shim.strides_(handle, &strides) |
                        shim.dtype_(handle, &dtype) | shim.data_(handle, &data);
  if (error != 0) return false;
  const uint64_t keys = WordAt(impl, shim.keys_at_);
  // A tensor of the CPU is known by its keys, which saves two calls.
  int32_t device_type = kDeviceCpu, device_index = -1;
  if ((keys & shim.backend_keys_) != shim.cpu_key_ &&
      (shim.device_type_(handle, &device_type) != 0 ||
       shim.device_index_(handle, &device_index) != 0)) {
    return false;
  }
  tensor->dtype = static_cast<Dtype>(dtype);
  tensor->device_type = static_cast<uint8_t>(device_type);
  tensor->device_index = static_cast<int8_t>(device_index);
  tensor->layout = kLayoutStrided;  // its keys say so
  tensor->negative = (keys & shim.negative_key_) != 0;
  tensor->conjugate = (keys & shim.conjugate_key_) != 0;
  tensor->ndim = static_cast<int32_t>(dim);
  tensor->sizes = static_cast<const int64_t*>(sizes);
  tensor->strides = static_cast<const int64_t*>(strides);
  tensor->data = data;
  tensor->storage = storage;
  return true;
}

std::optional<StorageExtent> TensorShim::StorageOf(PyObject* object) {
  const TensorShim& shim = Get();
  const void* handle = shim.PlainHandle(object);
  StorageExtent extent;
  if (handle == nullptr || shim.storage_size_(handle, &extent.bytes) != 0 ||
      shim.storage_offset_(handle, &extent.offset) != 0) {
    return std::nullopt;
  }
  return extent;
}

}  // namespace traincheck::agent
