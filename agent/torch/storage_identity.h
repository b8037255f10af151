// A number given once to the storage of a tensor, and to no other: views of
// one memory have the same, and a storage that comes to lie where another died
// has its own.
//
// Held weakly, through torch's Python object of the storage, which lives
// exactly as long as the storage itself. (Torch's own weak references to
// storages would keep the small C++ objects of dead ones, between which the
// heap then breaks into pieces.)
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_TORCH_STORAGE_IDENTITY_H_
#define TRAINCHECK_AGENT_TORCH_STORAGE_IDENTITY_H_

#include <cstdint>

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// 0: it has no storage of its own. About 10 ns for one seen before whose
// address is given (`storage`: the StorageImpl as TensorDescriptor has it, or
// null), else 1 to 2 us.
// REQUIRES: `tensor` is a tensor.
uint64_t StorageNumber(PyObject* tensor, const void* storage);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_TORCH_STORAGE_IDENTITY_H_
