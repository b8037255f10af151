#include "agent/torch/tensor_view.h"

#include <algorithm>
#include <cstring>
#include <list>
#include <utility>

#include "agent/torch/digest.h"
#include "agent/torch/torch_api.h"

namespace traincheck {
namespace {

// Elements of a tensor with gaps are gathered into a block of this size.
constexpr size_t kBlockBytes = 16u << 10;
constexpr size_t kMaxDimensions = 64;  // torch's own limit

// Names of attributes, made once.
struct Names {
  PyObject* data_ptr = PyUnicode_InternFromString("data_ptr");
  PyObject* device = PyUnicode_InternFromString("device");
  PyObject* dtype = PyUnicode_InternFromString("dtype");
  PyObject* element_size = PyUnicode_InternFromString("element_size");
  PyObject* grad = PyUnicode_InternFromString("grad");
  PyObject* is_conj = PyUnicode_InternFromString("is_conj");
  PyObject* is_cpu = PyUnicode_InternFromString("is_cpu");
  PyObject* is_leaf = PyUnicode_InternFromString("is_leaf");
  PyObject* is_neg = PyUnicode_InternFromString("is_neg");
  PyObject* layout = PyUnicode_InternFromString("layout");
  PyObject* nbytes = PyUnicode_InternFromString("nbytes");
  PyObject* requires_grad = PyUnicode_InternFromString("requires_grad");
  PyObject* retains_grad = PyUnicode_InternFromString("retains_grad");
  PyObject* shape = PyUnicode_InternFromString("shape");
  PyObject* storage_offset = PyUnicode_InternFromString("storage_offset");
  PyObject* stride = PyUnicode_InternFromString("stride");
  PyObject* untyped_storage = PyUnicode_InternFromString("untyped_storage");

  static const Names& Get() {
    static const auto* names = new Names;
    return *names;
  }
};

bool IsTrue(const Ref& value) { return value.get() == Py_True; }

std::string TextOf(PyObject* object) {
  if (object == nullptr) return "";
  const Ref text(PyObject_Str(object));
  if (!text) PyErr_Clear();
  return std::string(Utf8(text.get()));
}

// Name of a torch.dtype. The objects are few and live for ever, and so do the
// names.
const std::string* DtypeName(Ref dtype) {
  static auto* names = new std::list<std::pair<Ref, std::string>>;
  for (const auto& [object, name] : *names) {
    if (object.get() == dtype.get()) return &name;
  }
  std::string name = TextOf(dtype.get());
  names->emplace_back(std::move(dtype), std::move(name));
  return &names->back().second;
}

// Result of a method without arguments, as an integer.
std::optional<int64_t> CallForInteger(PyObject* object, PyObject* name) {
  const Ref result = CallMethod(object, name);
  // Addresses are unsigned; all 64 bits are wanted.
  const uint64_t value =
      result ? PyLong_AsUnsignedLongLongMask(result.get()) : 0;
  if (!result || PyErr_Occurred() != nullptr) {
    PyErr_Clear();
    return std::nullopt;
  }
  return static_cast<int64_t>(value);
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

bool TensorView::ReadShape(PyObject* tensor) {
  const Names& names = Names::Get();
  const auto sizes = Integers(Attribute(tensor, names.shape).get());
  const auto strides = Integers(CallMethod(tensor, names.stride).get());
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
  const Names& names = Names::Get();
  const Ref storage = CallMethod(tensor, names.untyped_storage);
  if (!storage) return false;
  const auto have = CallForInteger(storage.get(), names.nbytes);
  const auto offset = CallForInteger(tensor, names.storage_offset);
  if (!have || !offset) return false;
  int64_t end = *offset * element_bytes_ + element_bytes_;
  for (const Dimension& d : dimensions_) end += (d.size - 1) * d.stride_bytes;
  return end <= *have;
}

std::optional<TensorView> TensorView::Of(PyObject* tensor) {
  if (!TorchApi::IsPlainTensor(tensor)) return std::nullopt;
  const Names& names = Names::Get();
  if (!IsTrue(Attribute(tensor, names.is_cpu))) return std::nullopt;
  if (!TorchApi::IsStrided(Attribute(tensor, names.layout).get())) {
    return std::nullopt;
  }
  // Their bytes are not their values.
  if (IsTrue(CallMethod(tensor, names.is_neg)) ||
      IsTrue(CallMethod(tensor, names.is_conj))) {
    return std::nullopt;
  }
  const auto element_bytes = CallForInteger(tensor, names.element_size);
  if (!element_bytes || *element_bytes <= 0 ||
      kBlockBytes % static_cast<size_t>(*element_bytes) != 0) {
    return std::nullopt;
  }
  TensorView view;
  view.element_bytes_ = *element_bytes;
  view.dtype_ = DtypeName(Attribute(tensor, names.dtype));
  if (!view.ReadShape(tensor)) return std::nullopt;
  const auto address = CallForInteger(tensor, names.data_ptr);
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
  return {FinishDigest(sum.sum, bytes_, *dtype_), sum.any_bits == 0};
}

TensorFacts FactsOf(PyObject* tensor) {
  const Names& names = Names::Get();
  TensorFacts facts;
  facts.dtype = *DtypeName(Attribute(tensor, names.dtype));
  facts.device = TextOf(Attribute(tensor, names.device).get());
  facts.shape = Integers(Attribute(tensor, names.shape).get())
                    .value_or(std::vector<int64_t>());
  facts.requires_grad = RequiresGrad(tensor);
  return facts;
}

bool IsLeaf(PyObject* tensor) {
  return IsTrue(Attribute(tensor, Names::Get().is_leaf));
}

bool RequiresGrad(PyObject* tensor) {
  return IsTrue(Attribute(tensor, Names::Get().requires_grad));
}

Ref GradOf(PyObject* tensor) {
  const Names& names = Names::Get();
  if (!IsLeaf(tensor) && !IsTrue(Attribute(tensor, names.retains_grad))) {
    return Ref::Borrow(Py_None);
  }
  return Attribute(tensor, names.grad);
}

}  // namespace traincheck
