#include "agent/capture/wrapper.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <string>

#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

PyTypeObject* g_type = nullptr;
PyTypeObject* g_static_type = nullptr;  // does not bind

Wrapper* As(PyObject* object) { return reinterpret_cast<Wrapper*>(object); }

int Traverse(PyObject* object, visitproc visit, void* arg) {
  Wrapper* self = As(object);
  // The type is of the heap: since Python 3.9 its instances have to visit it.
  Py_VISIT(Py_TYPE(object));
  Py_VISIT(self->fn);
  Py_VISIT(self->attributes);
  Py_VISIT(self->hooks.before);
  Py_VISIT(self->hooks.after);
  return 0;
}

// fn stays: a wrapper in a cycle that is being collected may still be called.
int Clear(PyObject* object) {
  Wrapper* self = As(object);
  Py_CLEAR(self->attributes);
  Py_CLEAR(self->hooks.before);
  Py_CLEAR(self->hooks.after);
  return 0;
}

void Dealloc(PyObject* object) {
  Wrapper* self = As(object);
  PyTypeObject* type = Py_TYPE(object);
  // Before anything is taken apart: the collector must not visit half of an
  // object.
  PyObject_GC_UnTrack(object);
  if (self->weak_references != nullptr) PyObject_ClearWeakRefs(object);
  Clear(object);
  Py_CLEAR(self->fn);
  delete self->function;
  PyObject_GC_Del(object);
  Py_DECREF(type);
}

// Everything that the wrapper itself lacks is asked of the function.
PyObject* GetAttribute(PyObject* object, PyObject* name) {
  // What a program has set on the wrapper goes before the function's own.
  PyObject* own = PyObject_GenericGetAttr(object, name);
  if (own != nullptr || !PyErr_ExceptionMatches(PyExc_AttributeError)) {
    return own;
  }
  PyErr_Clear();
  return PyObject_GetAttr(As(object)->fn, name);
}

// Like a function of Python's, which binds to nothing when a class is asked for
// it.
PyObject* Bind(PyObject* self, PyObject* object, PyObject*) {
  if (object == nullptr || object == Py_None) {
    Py_INCREF(self);
    return self;
  }
  return PyMethod_New(self, object);
}

PyObject* Represent(PyObject* object) { return PyObject_Repr(As(object)->fn); }

Py_hash_t Hash(PyObject* object) { return PyObject_Hash(As(object)->fn); }

// Equal to its function and with the same hash, so that tables which are keyed
// by function (torch.overrides) find the wrapper too.
PyObject* Compare(PyObject* left, PyObject* right, int operation) {
  if (operation != Py_EQ && operation != Py_NE) {
    Py_INCREF(Py_NotImplemented);
    return Py_NotImplemented;
  }
  PyObject* inner_left = IsWrapper(left) ? As(left)->fn : left;
  PyObject* inner_right = IsWrapper(right) ? As(right)->fn : right;
  return PyObject_RichCompare(inner_left, inner_right, operation);
}

// Does the qualified name of its function lead to this wrapper? Then pickle may
// store the name alone.
bool IsFoundByName(PyObject* object) {
  const Ref module = Attribute(As(object)->fn, "__module__");
  const Ref name = Attribute(As(object)->fn, "__qualname__");
  if (!module || !name) return false;
  Ref at = Ref::Borrow(PyDict_GetItem(PyImport_GetModuleDict(), module.get()));
  const std::string path(Utf8(name.get()));
  for (size_t begin = 0; at && begin <= path.size();) {
    const size_t end = std::min(path.find('.', begin), path.size());
    at = Attribute(at.get(), path.substr(begin, end - begin).c_str());
    begin = end + 1;
  }
  return at.get() == object;
}

// A string pickles by name and copies as the object itself. A callable that the
// name does not lead to (one that was handed over) is pickled as the function
// itself, by means of typing.cast, which returns its second argument.
PyObject* Reduce(PyObject* object, PyObject*) {
  PyObject* fn = As(object)->fn;
  if (IsFoundByName(object)) return PyObject_GetAttrString(fn, "__qualname__");
  if (PyCFunction_Check(fn) || Py_TYPE(fn) == &PyMethodDescr_Type) {
    // "Attribute of that class"; a name would lead elsewhere, see above.
    Ref own(PyObject_CallMethod(fn, "__reduce__", ""));
    if (!own || PyTuple_Check(own.get())) return own.Release();
  }
  const Ref typing(PyImport_ImportModule("typing"));
  const Ref cast = typing ? Attribute(typing.get(), "cast") : Ref();
  return cast ? Py_BuildValue("O(OO)", cast.get(), Py_None, fn) : nullptr;
}

// isinstance() and inspect see the class of the function.
PyObject* GetClass(PyObject* object, void*) {
  PyObject* type = reinterpret_cast<PyObject*>(Py_TYPE(As(object)->fn));
  Py_INCREF(type);
  return type;
}

// These attributes come from the function: the type's own would hide them from
// GetAttribute.
PyObject* Forwarded(PyObject* object, void* name) {
  Wrapper* self = As(object);
  const auto* attribute = static_cast<const char*>(name);
  if (self->attributes != nullptr) {
    PyObject* own = PyDict_GetItemString(self->attributes, attribute);
    if (own != nullptr) {
      Py_INCREF(own);
      return own;
    }
  }
  return PyObject_GetAttrString(self->fn, attribute);
}

int SetForwarded(PyObject* object, PyObject* value, void* name) {
  Wrapper* self = As(object);
  const auto* attribute = static_cast<const char*>(name);
  // Kept beside the function: a program that renames the wrapper must not
  // rename torch's function for everybody.
  if (self->attributes == nullptr) self->attributes = PyDict_New();
  if (self->attributes == nullptr) return -1;
  return value == nullptr
             ? PyDict_DelItemString(self->attributes, attribute)
             : PyDict_SetItemString(self->attributes, attribute, value);
}

PyMethodDef kMethods[] = {
    {"__reduce__", Reduce, METH_NOARGS, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

void* Name(const char* name) { return const_cast<char*>(name); }

PyGetSetDef kGetSets[] = {
    {"__class__", GetClass, nullptr, nullptr, nullptr},
    {"__doc__", Forwarded, SetForwarded, nullptr, Name("__doc__")},
    {"__module__", Forwarded, SetForwarded, nullptr, Name("__module__")},
    {"__name__", Forwarded, SetForwarded, nullptr, Name("__name__")},
    {"__qualname__", Forwarded, SetForwarded, nullptr, Name("__qualname__")},
    // Visible to static lookups too: torch's compiler looks for attributes so.
    {"__dict__", PyObject_GenericGetDict, PyObject_GenericSetDict, nullptr,
     nullptr},
    {nullptr, nullptr, nullptr, nullptr, nullptr},
};

PyMemberDef kMembers[] = {
    {"__wrapped__", T_OBJECT, offsetof(Wrapper, fn), READONLY, nullptr},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(Wrapper, vectorcall),
     READONLY, nullptr},
    {"__dictoffset__", T_PYSSIZET, offsetof(Wrapper, attributes), READONLY,
     nullptr},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(Wrapper, weak_references),
     READONLY, nullptr},
    {nullptr, 0, 0, 0, nullptr},
};

PyType_Slot kSlots[] = {
    {Py_tp_dealloc, reinterpret_cast<void*>(Dealloc)},
    {Py_tp_traverse, reinterpret_cast<void*>(Traverse)},
    {Py_tp_clear, reinterpret_cast<void*>(Clear)},
    {Py_tp_call, reinterpret_cast<void*>(PyVectorcall_Call)},
    {Py_tp_getattro, reinterpret_cast<void*>(GetAttribute)},
    {Py_tp_setattro, reinterpret_cast<void*>(PyObject_GenericSetAttr)},
    {Py_tp_repr, reinterpret_cast<void*>(Represent)},
    {Py_tp_hash, reinterpret_cast<void*>(Hash)},
    {Py_tp_richcompare, reinterpret_cast<void*>(Compare)},
    {Py_tp_methods, kMethods},
    {Py_tp_getset, kGetSets},
    {Py_tp_members, kMembers},
    {0, nullptr},  // a place for Bind
    {0, nullptr},
};

constexpr unsigned long kFlags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC |
                                 Py_TPFLAGS_HAVE_VECTORCALL |
                                 Py_TPFLAGS_DISALLOW_INSTANTIATION;

PyTypeObject* MakeType(const char* name, bool binds) {
  // PyType_FromSpec copies the slots, so both types are made of one array.
  kSlots[std::size(kSlots) - 2] =
      binds ? PyType_Slot{Py_tp_descr_get, reinterpret_cast<void*>(Bind)}
            : PyType_Slot{0, nullptr};
  PyType_Spec spec = {name, sizeof(Wrapper), 0,
                      static_cast<unsigned>(
                          kFlags | (binds ? Py_TPFLAGS_METHOD_DESCRIPTOR : 0)),
                      kSlots};
  return reinterpret_cast<PyTypeObject*>(PyType_FromSpec(&spec));
}

// A class binds what it holds by this flag: functions have it, C functions do
// not.
bool BecomesMethod(PyObject* fn) {
  return (PyType_GetFlags(Py_TYPE(fn)) & Py_TPFLAGS_METHOD_DESCRIPTOR) != 0;
}

}  // namespace

bool ReadyWrapperType() {
  if (g_type == nullptr) g_type = MakeType("_traincheck.wrapper", true);
  if (g_static_type == nullptr) {
    g_static_type = MakeType("_traincheck.static_wrapper", false);
  }
  return g_type != nullptr && g_static_type != nullptr;
}

bool IsWrapper(PyObject* value) {
  return Py_TYPE(value) == g_type || Py_TYPE(value) == g_static_type;
}

PyObject* NewWrapper(PyObject* fn, TraincheckVectorcall vectorcall,
                     Function* function, const Hooks& hooks) {
  // A wrapper becomes a method exactly where its function would.
  PyObject* object =
      PyType_GenericAlloc(BecomesMethod(fn) ? g_type : g_static_type, 0);
  if (object == nullptr) {
    delete function;
    return nullptr;
  }
  Wrapper* self = As(object);
  self->vectorcall = vectorcall;
  self->fn = fn;
  self->function = function;
  self->hooks = hooks;
  Py_INCREF(fn);
  Py_XINCREF(hooks.before);
  Py_XINCREF(hooks.after);
  return object;
}

// The hot path for all wrapped functions. An inactive function costs one test.
PyObject* CallRecorded(PyObject* object, PyObject* const* arguments,
                       size_t nargsf, PyObject* names) {
  Wrapper* self = As(object);
  // The cheapest question first: it is asked at every call.
  if (!IsRecorded(*self->function)) {
    return PyObject_Vectorcall(self->fn, arguments, nargsf, names);
  }
  ThreadRecorder* thread = CurrentThread();
  // What a trace follows stays as the user wrote it (CallModule).
  if (thread == nullptr || thread->in_hook() || TorchApi::Tracing()) {
    return PyObject_Vectorcall(self->fn, arguments, nargsf, names);
  }
  const CallArguments given = {arguments, nargsf, names};
  // The wrapper may be replaced, and its last reference go, while it runs.
  Py_INCREF(object);
  const CallInProgress call = BeginCall(*thread, *self->function, given, 0);
  const bool hooks = self->hooks.any() && (!self->hooks.outermost_only ||
                                           (call.flags & kOutermost) != 0);
  PyObject* result =
      hooks ? CallWithHooks(self->fn, given, self->hooks,
                            self->function->facts.name)
            : PyObject_Vectorcall(self->fn, arguments, nargsf, names);
  EndCall(call, *self->function, result, 0);
  Py_DECREF(object);
  return result;
}

}  // namespace traincheck::agent
