// Numbers of Python objects by identity, held weakly: an entry goes when its
// object dies, so that a new object at the same address is a new one.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_OBJECT_TABLE_H_
#define TRAINCHECK_AGENT_CAPTURE_OBJECT_TABLE_H_

#include <cstdint>
#include <unordered_map>

#include "agent/capture/process_recorder.h"
#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// Identity -> T. An object that cannot be referred to weakly is refused.
template <typename T>
class WeakMap {
 public:
  // nullptr: not in here.
  T* Find(PyObject* object) {
    const auto it = entries_.find(object);
    return it == entries_.end() ? nullptr : &it->second.value;
  }

  // The entry, made if need be; nullptr: the object cannot be held weakly.
  T* FindOrAdd(PyObject* object) {
    if (T* known = Find(object)) return known;
    Ref reference = MakeReference(object);
    if (!reference) {
      DropException();
      return nullptr;
    }
    Entry& entry = entries_[object];
    entry.reference = std::move(reference);
    return &entry.value;
  }

 private:
  struct Entry {
    Ref reference;
    T value{};
  };
  struct Key {
    WeakMap* map;
    PyObject* object;
  };
  static constexpr char kKey[] = "traincheck.weak_key";

  // A weak reference whose callback removes the entry.
  Ref MakeReference(PyObject* object) {
    static PyMethodDef removed = {"removed", &WeakMap::Removed, METH_O,
                                  nullptr};
    const Ref capsule(
        PyCapsule_New(new Key{this, object}, kKey, &WeakMap::DeleteKey));
    if (!capsule) return Ref();
    const Ref callback(PyCFunction_NewEx(&removed, capsule.get(), nullptr));
    if (!callback) return Ref();
    return Ref(PyWeakref_NewRef(object, callback.get()));
  }

  static void DeleteKey(PyObject* capsule) {
    delete static_cast<Key*>(PyCapsule_GetPointer(capsule, kKey));
  }

  static PyObject* Removed(PyObject* capsule, PyObject*) {
    const auto* key = static_cast<Key*>(PyCapsule_GetPointer(capsule, kKey));
    if (key != nullptr) {
      // Moved out first: dropping the reference must not meet a half-erased
      // entry.
      auto node = key->map->entries_.extract(key->object);
    }
    Py_INCREF(Py_None);
    return Py_None;
  }

  std::unordered_map<PyObject*, Entry> entries_;
};

// Modules, optimizers, loaders: the objects that have an ObjectDef.
class ObjectTable {
 public:
  struct Object {
    uint32_t id = 0;
    uint32_t generation = 0;  // in which it was defined
    uint64_t fingerprint = 0;
  };

  static ObjectTable& Get();

  // 0: not defined in this process.
  uint32_t IdOf(PyObject* object) {
    const Object* known = objects_.Find(object);
    return known != nullptr && known->generation == g_generation ? known->id
                                                                 : 0;
  }

  // The entry with its number, which outlives forks; nullptr: see WeakMap.
  Object* Number(PyObject* object) {
    Object* entry = objects_.FindOrAdd(object);
    if (entry != nullptr && entry->id == 0) entry->id = ++last_id_;
    return entry;
  }

 private:
  WeakMap<Object> objects_;
  uint32_t last_id_ = 0;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_OBJECT_TABLE_H_
