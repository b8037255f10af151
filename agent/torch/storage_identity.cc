#include "agent/torch/storage_identity.h"

#include <unordered_map>

#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Numbers by address of the StorageImpl. The callback of the weak reference
// removes an entry when its storage dies, before another storage can have the
// address.
class StorageTable {
 public:
  // Never destroyed: its references must not go after the interpreter.
  static StorageTable& Get() {
    static auto* all = new StorageTable;
    return *all;
  }

  uint64_t Find(const void* address) const {
    const auto it = entries_.find(address);
    return it == entries_.end() ? 0 : it->second.number;
  }

  // The slow way, for a storage that is seen for the first time or without a
  // shim.
  uint64_t NumberOf(PyObject* tensor) {
    const Ref storage = CallMethod(tensor, untyped_storage_);
    const void* address = storage ? AddressOf(storage.get()) : nullptr;
    if (address == nullptr) return 0;
    // It may be known by its address, which the caller could not give.
    if (const uint64_t known = Find(address)) return known;
    // The weak reference comes before the entry: an entry that nobody removes
    // would give its number to the next storage at this address.
    Ref reference = MakeReference(storage.get(), address);
    if (!reference) {
      DropException();
      return 0;
    }
    Entry& entry = entries_[address];
    entry.reference = std::move(reference);
    return entry.number = ++last_;
  }

 private:
  struct Entry {
    Ref reference;
    uint64_t number = 0;
  };

  const void* AddressOf(PyObject* storage) const {
    const Ref value = Attribute(storage, cdata_);
    if (!value) return nullptr;
    const unsigned long long address =
        PyLong_AsUnsignedLongLongMask(value.get());
    if (PyErr_Occurred() != nullptr) {
      DropException();
      return nullptr;
    }
    return reinterpret_cast<const void*>(static_cast<uintptr_t>(address));
  }

  // A weak reference whose callback removes the entry. The callback is a
  // function bound to the address, as an int.
  static Ref MakeReference(PyObject* storage, const void* address) {
    static PyMethodDef removed = {"removed", &StorageTable::Removed, METH_O,
                                  nullptr};
    const Ref number(PyLong_FromVoidPtr(const_cast<void*>(address)));
    if (!number) return Ref();
    const Ref callback(PyCFunction_NewEx(&removed, number.get(), nullptr));
    if (!callback) return Ref();
    return Ref(PyWeakref_NewRef(storage, callback.get()));
  }

  // Runs inside the storage's deallocation, with the GIL.
  static PyObject* Removed(PyObject* address, PyObject*) {
    // Moved out first: dropping the reference must not meet a half-erased
    // entry.
    const auto node = Get().entries_.extract(PyLong_AsVoidPtr(address));
    Py_INCREF(Py_None);
    return Py_None;
  }

  PyObject* const untyped_storage_ =
      PyUnicode_InternFromString("untyped_storage");
  PyObject* const cdata_ = PyUnicode_InternFromString("_cdata");
  std::unordered_map<const void*, Entry> entries_;
  uint64_t last_ = 0;
};

}  // namespace

// The address answers for nearly all tensors without a call of Python.
uint64_t StorageNumber(PyObject* tensor, const void* storage) {
  StorageTable& all = StorageTable::Get();
  if (storage != nullptr) {
    if (const uint64_t known = all.Find(storage)) return known;
  }
  // Others may answer with the storage of an inner tensor.
  if (!TorchApi::IsPlainTensor(tensor)) return 0;
  const TorchApi::WithoutOverrides direct;
  return all.NumberOf(tensor);
}

}  // namespace traincheck::agent
