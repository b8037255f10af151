#include "agent/torch/tensor_view.h"

#include <algorithm>
#include <cstring>

#include "agent/torch/digest.h"
#include "agent/torch/torch_api.h"

namespace traincheck {
namespace {

// Elements of a tensor with gaps are gathered into a block of this size.
constexpr size_t kBlockBytes = 16u << 10;
constexpr size_t kMaxDimensions = 64;  // torch's own limit

std::string TextOf(PyObject* object) {
  if (object == nullptr) return "";
  const Ref text(PyObject_Str(object));
  if (!text) PyErr_Clear();
  return std::string(Utf8(text.get()));
}

// Result of a method without arguments, as an integer.
std::optional<int64_t> CallForInteger(PyObject* object, const char* name) {
  const Ref method = Attribute(object, name);
  if (!method) return std::nullopt;
  const Ref result(PyObject_Vectorcall(method.get(), nullptr, 0, nullptr));
  // Addresses are unsigned; all 64 bits are wanted.
  const uint64_t value =
      result ? PyLong_AsUnsignedLongLongMask(result.get()) : 0;
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
}

bool CallForTruth(PyObject* object, const char* name) {
  const Ref method = Attribute(object, name);
  const Ref result(method
                       ? PyObject_Vectorcall(method.get(), nullptr, 0, nullptr)
                       : nullptr);
  if (!result) PyErr_Clear();
  return result.get() == Py_True;
}

// A tuple (torch.Size, strides) of integers. None: it is something else.
std::optional<std::vector<int64_t>> Integers(PyObject* tuple) {
  if (tuple == nullptr || !PyTuple_Check(tuple)) return std::nullopt;
  std::vector<int64_t> values;
  const Py_ssize_t size = PyTuple_Size(tuple);
  for (Py_ssize_t i = 0; i < size; ++i) {
    values.push_back(PyLong_AsLongLong(PyTuple_GetItem(tuple, i)));
  }
  if (PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return values;
}

std::optional<std::vector<int64_t>> Strides(PyObject* tensor) {
  const Ref method = Attribute(tensor, "stride");
  const Ref result(method
                       ? PyObject_Vectorcall(method.get(), nullptr, 0, nullptr)
                       : nullptr);
  if (!result) PyErr_Clear();
  return Integers(result.get());
}

// Puts elements in logical order into blocks and sums those.
class Gatherer {
 public:
  explicit Gatherer(size_t element_bytes) : element_bytes_(element_bytes) {}

  void Take(const char* element) {
    std::memcpy(block_ + used_, element, element_bytes_);
    used_ += element_bytes_;
    if (used_ == kBlockBytes) Flush();
  }
  DigestSum Finish() {
    Flush();
    return sum_;
  }

 private:
  void Flush() {
    sum_ += SumWords(block_, used_, next_word_);
    next_word_ += used_ / sizeof(uint64_t);
    used_ = 0;
  }

  const size_t element_bytes_;  // a power of two: blocks hold whole elements
  char block_[kBlockBytes];
  size_t used_ = 0;
  uint64_t next_word_ = 0;
  DigestSum sum_;
};

}  // namespace

bool BoolAttribute(PyObject* object, const char* name) {
  return Attribute(object, name).get() == Py_True;
}

bool TensorView::ReadShape(PyObject* tensor) {
  const auto sizes = Integers(Attribute(tensor, "shape").get());
  const auto strides = Strides(tensor);
  if (!sizes || !strides || sizes->size() != strides->size() ||
      sizes->size() > kMaxDimensions) {
    return false;
  }
  bytes_ = static_cast<uint64_t>(element_bytes_);
  for (const int64_t size : *sizes) bytes_ *= static_cast<uint64_t>(size);
  for (size_t i = 0; i < sizes->size(); ++i) {
    const Dimension next = {(*sizes)[i], (*strides)[i] * element_bytes_};
    if (next.size < 0 || next.stride_bytes < 0) return false;
    if (next.size == 1) continue;
    // The outer dimension goes on where the inner one ends: one dimension.
    if (!dimensions_.empty() &&
        dimensions_.back().stride_bytes == next.size * next.stride_bytes) {
      dimensions_.back() = {dimensions_.back().size * next.size,
                            next.stride_bytes};
    } else {
      dimensions_.push_back(next);
    }
  }
  return true;
}

// A storage may have been freed under its tensor (FSDP does it).
bool TensorView::FitsStorage(PyObject* tensor) const {
  if (bytes_ == 0) return true;
  if (data_ == nullptr) return false;
  const Ref method = Attribute(tensor, "untyped_storage");
  const Ref storage(method
                        ? PyObject_Vectorcall(method.get(), nullptr, 0, nullptr)
                        : nullptr);
  if (!storage) {
    PyErr_Clear();
    return false;
  }
  const auto have = CallForInteger(storage.get(), "nbytes");
  const auto offset = CallForInteger(tensor, "storage_offset");
  if (!have || !offset) return false;
  int64_t end = *offset * element_bytes_ + element_bytes_;
  for (const Dimension& d : dimensions_) end += (d.size - 1) * d.stride_bytes;
  return end <= *have;
}

std::optional<TensorView> TensorView::Of(PyObject* tensor) {
  if (!TorchApi::IsPlainTensor(tensor)) return std::nullopt;
  if (!BoolAttribute(tensor, "is_cpu")) return std::nullopt;
  if (!TorchApi::IsStrided(Attribute(tensor, "layout").get())) {
    return std::nullopt;
  }
  // Their bytes are not their values.
  if (CallForTruth(tensor, "is_neg") || CallForTruth(tensor, "is_conj")) {
    return std::nullopt;
  }
  const auto element_bytes = CallForInteger(tensor, "element_size");
  if (!element_bytes || *element_bytes <= 0 ||
      kBlockBytes % static_cast<size_t>(*element_bytes) != 0) {
    return std::nullopt;
  }
  TensorView view;
  view.element_bytes_ = *element_bytes;
  view.dtype_ = TextOf(Attribute(tensor, "dtype").get());
  if (!view.ReadShape(tensor)) return std::nullopt;
  const auto address = CallForInteger(tensor, "data_ptr");
  if (!address) return std::nullopt;
  view.data_ = reinterpret_cast<const char*>(*address);
  if (!view.FitsStorage(tensor)) return std::nullopt;
  return view;
}

ContentDigest TensorView::Digest() const {
  DigestSum sum;
  const bool dense =
      dimensions_.empty() || (dimensions_.size() == 1 &&
                              dimensions_[0].stride_bytes == element_bytes_);
  if (dense) {
    sum = SumWords(data_, bytes_, 0);
  } else if (bytes_ != 0) {
    Gatherer gatherer(static_cast<size_t>(element_bytes_));
    const Dimension inner = dimensions_.back();
    std::vector<int64_t> index(dimensions_.size() - 1, 0);
    const char* row = data_;
    while (true) {
      for (int64_t i = 0; i < inner.size; ++i) {
        gatherer.Take(row + i * inner.stride_bytes);
      }
      // To the next row, as an odometer turns.
      size_t at = index.size();
      while (at > 0) {
        const Dimension& outer = dimensions_[at - 1];
        row += outer.stride_bytes;
        if (++index[at - 1] < outer.size) break;
        row -= outer.size * outer.stride_bytes;
        index[--at] = 0;
      }
      if (at == 0) break;
    }
    sum = gatherer.Finish();
  }
  return {FinishDigest(sum.sum, bytes_, dtype_), sum.any_bits == 0};
}

TensorFacts FactsOf(PyObject* tensor) {
  TensorFacts facts;
  facts.dtype = TextOf(Attribute(tensor, "dtype").get());
  facts.device = TextOf(Attribute(tensor, "device").get());
  facts.shape = Integers(Attribute(tensor, "shape").get())
                    .value_or(std::vector<int64_t>());
  facts.requires_grad = BoolAttribute(tensor, "requires_grad");
  return facts;
}

}  // namespace traincheck
