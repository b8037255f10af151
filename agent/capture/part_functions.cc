// What hooks do for each part of a model (hooks/parts.py) at several points of
// each step: here, because a loop of Python over the modules of a model takes
// longer than everything else that is done there.
#include <cstring>

#include "agent/capture/argument_parsing.h"
#include "agent/capture/call_site.h"
#include "agent/capture/module_functions.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// Attributes of Part, ThreadClaim and torch.nn.Module.
struct Names {
  PyObject* module = PyUnicode_InternFromString("module");
  PyObject* content = PyUnicode_InternFromString("content");
  PyObject* params = PyUnicode_InternFromString("params");
  PyObject* sharded = PyUnicode_InternFromString("sharded");
  PyObject* claim = PyUnicode_InternFromString("claim");
  PyObject* thread = PyUnicode_InternFromString("thread");
  PyObject* changed = PyUnicode_InternFromString("changed");
  PyObject* collect_params = PyUnicode_InternFromString("collect_params");
  PyObject* parameters = PyUnicode_InternFromString("_parameters");
  PyObject* buffers = PyUnicode_InternFromString("_buffers");
  PyObject* modules = PyUnicode_InternFromString("_modules");
};

const Names& Name() {
  static const auto* names = new Names;
  return *names;
}

// The object of a weak reference; none if it is gone. An exception is set if
// `reference` is not a weak reference.
Ref Referent(PyObject* reference) {
  Ref object(PyObject_Vectorcall(reference, nullptr, 0, nullptr));
  return object.get() == Py_None ? Ref() : std::move(object);
}

void Append(std::string* bytes, uint64_t word) {
  bytes->append(reinterpret_cast<const char*>(&word), sizeof word);
}

uint64_t AddressOf(const PyObject* object) {
  return reinterpret_cast<uintptr_t>(object);
}

// Addresses of a dict's values, in its order. False: an exception is set.
bool AppendValues(PyObject* module, PyObject* table, std::string* bytes) {
  const Ref dict(PyObject_GetAttr(module, table));
  if (!dict) return false;
  PyObject *key, *value;
  for (Py_ssize_t place = 0; PyDict_Next(dict.get(), &place, &key, &value);) {
    Append(bytes, AddressOf(value));
  }
  return true;
}

// Hashes of the names of buffers that are not None. A buffer that is replaced
// by another tensor under its name counts as the same.
bool AppendBufferNames(PyObject* module, std::string* bytes) {
  const Ref dict(PyObject_GetAttr(module, Name().buffers));
  if (!dict) return false;
  PyObject *key, *value;
  for (Py_ssize_t place = 0; PyDict_Next(dict.get(), &place, &key, &value);) {
    if (value == Py_None) continue;
    const Py_hash_t hash = PyObject_Hash(key);
    if (hash == -1) return false;
    Append(bytes, static_cast<uint64_t>(hash));
  }
  return true;
}

// What a module holds: its parameters, and what else it has. By addresses and
// hashes of names: what is another object has changed, and no tensor is read
// for that.
struct Content {
  std::string parameters;
  std::string rest;

  bool Read(PyObject* module) {
    parameters.clear();
    rest.clear();
    if (!AppendValues(module, Name().parameters, &parameters)) return false;
    if (!AppendValues(module, Name().modules, &rest)) return false;
    // A null, which is no address, ends the list of modules: no name's hash is
    // taken for a module.
    Append(&rest, 0);  // no address
    return AppendBufferNames(module, &rest);
  }
};

bool IsSame(PyObject* bytes, const std::string& other) {
  char* data = nullptr;
  Py_ssize_t size = 0;
  if (PyBytes_AsStringAndSize(bytes, &data, &size) != 0) return false;
  return static_cast<size_t>(size) == other.size() &&
         std::memcmp(data, other.data(), other.size()) == 0;
}

// Does a part's module hold other things than when the part was made? -1: an
// exception is set.
int HasChanged(PyObject* part, Content* now) {
  const Ref sharded(PyObject_GetAttr(part, Name().sharded));
  if (!sharded) return -1;
  if (PySet_Size(sharded.get()) != 0) {  // FSDP exchanges them all the time
    const Ref answer(
        PyObject_VectorcallMethod(Name().changed, &part, 1, nullptr));
    return answer ? PyObject_IsTrue(answer.get()) : -1;
  }
  const Ref reference(PyObject_GetAttr(part, Name().module));
  const Ref module = reference ? Referent(reference.get()) : Ref();
  // A module that is gone counts as unchanged: nothing of it is left to read.
  if (!module) return PyErr_Occurred() != nullptr ? -1 : 0;
  const Ref known(PyObject_GetAttr(part, Name().content));
  if (!known || !now->Read(module.get())) return -1;
  PyObject* parameters = PyTuple_GetItem(known.get(), 0);
  PyObject* rest = PyTuple_GetItem(known.get(), 1);
  if (parameters == nullptr || rest == nullptr) return -1;
  const bool same =
      IsSame(parameters, now->parameters) && IsSame(rest, now->rest);
  return PyErr_Occurred() != nullptr ? -1 : !same;
}

// What the hook stores in a part, for later comparison.
PyObject* ContentOf(PyObject*, PyObject* module) {
  Content content;
  if (!content.Read(module)) return nullptr;
  return Py_BuildValue("(y#y#)", content.parameters.data(),
                       static_cast<Py_ssize_t>(content.parameters.size()),
                       content.rest.data(),
                       static_cast<Py_ssize_t>(content.rest.size()));
}

// Called at each step with all parts of a model: one call of Python in the
// place of one for each module.
PyObject* ChangedParts(PyObject*, PyObject* parts) {
  Ref changed(PyList_New(0));
  Content content;
  const Py_ssize_t size = PyList_Size(parts);
  // The size is asked again each time: what is called may change the list.
  for (Py_ssize_t i = 0; i < size && i < PyList_Size(parts); ++i) {
    const Ref part = Ref::Borrow(PyList_GetItem(parts, i));
    const int has_changed = HasChanged(part.get(), &content);
    if (has_changed < 0) return nullptr;
    if (has_changed != 0 && PyList_Append(changed.get(), part.get()) != 0) {
      return nullptr;
    }
  }
  return size < 0 ? nullptr : changed.Release();
}

// Several threads may train one model (Hogwild); each looks at the parts that
// it has claimed. -1: an exception is set.
int IsMine(PyObject* part) {
  const Ref claim(PyObject_GetAttr(part, Name().claim));
  const Ref thread(claim ? PyObject_GetAttr(claim.get(), Name().thread)
                         : nullptr);
  if (!thread) return -1;
  if (thread.get() == Py_None) return 0;
  const unsigned long owner = PyLong_AsUnsignedLong(thread.get());
  if (PyErr_Occurred() != nullptr) return -1;
  return owner == PyThread_get_thread_ident();
}

// Appends variables and tensors of a part's rows (key, variable), leaving out
// those whose tensor is not there now.
bool CollectRows(PyObject* rows, PyObject* table, PyObject* variables,
                 PyObject* tensors) {
  for (Py_ssize_t i = 0; i < PyList_Size(rows); ++i) {
    const Ref row = Ref::Borrow(PyList_GetItem(rows, i));
    // Borrowed references of the tuple, which `row` keeps alive.
    PyObject* key = PyTuple_GetItem(row.get(), 0);
    PyObject* variable = PyTuple_GetItem(row.get(), 1);
    if (key == nullptr || variable == nullptr) return false;
    PyObject* tensor = PyDict_GetItemWithError(table, key);
    if (tensor == nullptr && PyErr_Occurred() != nullptr) return false;
    if (tensor == nullptr || tensor == Py_None) continue;
    if (PyList_Append(variables, variable) != 0 ||
        PyList_Append(tensors, tensor) != 0) {
      return false;
    }
  }
  return PyErr_Occurred() == nullptr;
}

bool CollectPart(PyObject* part, PyObject* variables, PyObject* tensors) {
  const Ref sharded(PyObject_GetAttr(part, Name().sharded));
  if (!sharded) return false;
  // FSDP exchanges the tensors: where they are is known to the hook alone.
  if (PySet_Size(sharded.get()) != 0) {
    PyObject* const arguments[] = {part, variables, tensors};
    return static_cast<bool>(Ref(PyObject_VectorcallMethod(
        Name().collect_params, arguments, 3, nullptr)));
  }
  const Ref rows(PyObject_GetAttr(part, Name().params));
  if (!rows) return false;
  if (PyList_Size(rows.get()) == 0) return true;
  const Ref reference(PyObject_GetAttr(part, Name().module));
  const Ref module = reference ? Referent(reference.get()) : Ref();
  if (!module) return PyErr_Occurred() == nullptr;
  const Ref table(PyObject_GetAttr(module.get(), Name().parameters));
  return table && CollectRows(rows.get(), table.get(), variables, tensors);
}

// Appends to lists of the caller's, so that all parts of a model give one pair
// of lists for record_states.
PyObject* CollectParameters(PyObject*, PyObject* args) {
  PyObject *parts, *variables, *tensors;
  int mine = 0;
  if (!PyArg_ParseTuple(args, "OOO|p", &parts, &variables, &tensors, &mine)) {
    return nullptr;
  }
  const Py_ssize_t size = PyList_Size(parts);
  // As in ChangedParts, what is called may change the list.
  for (Py_ssize_t i = 0; i < size && i < PyList_Size(parts); ++i) {
    const Ref part = Ref::Borrow(PyList_GetItem(parts, i));
    const int is_mine = mine != 0 ? IsMine(part.get()) : 1;
    if (is_mine < 0) return nullptr;
    if (is_mine != 0 && !CollectPart(part.get(), variables, tensors)) {
      return nullptr;
    }
  }
  return size < 0 ? nullptr : None();
}

// Counts the parameters of a part that require a gradient now. -1: an exception
// is set.
int TrainedIn(PyObject* part) {
  const Ref reference(PyObject_GetAttr(part, Name().module));
  const Ref module = reference ? Referent(reference.get()) : Ref();
  if (!module) return PyErr_Occurred() != nullptr ? -1 : 0;
  const Ref table(PyObject_GetAttr(module.get(), Name().parameters));
  if (!table) return -1;
  int trained = 0;
  PyObject *key, *tensor;
  for (Py_ssize_t at = 0; PyDict_Next(table.get(), &at, &key, &tensor);) {
    if (TorchApi::IsTensor(tensor) && RequiresGrad(tensor)) ++trained;
  }
  return trained;
}

PyObject* CountTrained(PyObject*, PyObject* parts) {
  const TorchApi::WithoutOverrides direct;
  long trained = 0;
  const Py_ssize_t size = PyList_Size(parts);
  for (Py_ssize_t i = 0; i < size && i < PyList_Size(parts); ++i) {
    const Ref part = Ref::Borrow(PyList_GetItem(parts, i));
    const int in_part = TrainedIn(part.get());
    if (in_part < 0) return nullptr;
    trained += in_part;
  }
  return size < 0 ? nullptr : PyLong_FromLong(trained);
}

// A fingerprint of the objects in several lists, for hooks that ask whether
// anything in them was replaced.
PyObject* Addresses(PyObject*, PyObject* lists) {
  std::string bytes;
  for (Py_ssize_t i = 0; i < PyList_Size(lists); ++i) {
    PyObject* list = PyList_GetItem(lists, i);
    const Py_ssize_t size = PySequence_Size(list);
    if (size < 0) return nullptr;
    // The size in front keeps two lists apart from one that has the items of
    // both.
    Append(&bytes, static_cast<uint64_t>(size));
    for (Py_ssize_t k = 0; k < size; ++k) {
      const Ref item(PySequence_GetItem(list, k));
      if (!item) return nullptr;
      Append(&bytes, AddressOf(item.get()));
    }
  }
  if (PyErr_Occurred() != nullptr) return nullptr;
  return PyBytes_FromStringAndSize(bytes.data(),
                                   static_cast<Py_ssize_t>(bytes.size()));
}

PyObject* PlaceFunction(PyObject*, PyObject* folder) {
  return PyLong_FromUnsignedLongLong(CallSites::Get().Place(Utf8(folder)));
}

}  // namespace

PyMethodDef kPartFunctions[] = {
    {"content_of", ContentOf, METH_O, nullptr},
    {"changed_parts", ChangedParts, METH_O, nullptr},
    {"collect_parameters", CollectParameters, METH_VARARGS, nullptr},
    {"count_trained", CountTrained, METH_O, nullptr},
    {"addresses", Addresses, METH_O, nullptr},
    {"code_place", PlaceFunction, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
