#include "agent/capture/own_type.h"

#include <string_view>

namespace traincheck::agent {
namespace {

// fully_shard and replicate put their classes into modules of
// torch.distributed.
bool IsOfDistributed(PyObject* type) {
  const Ref module = Attribute(type, "__module__");
  return Utf8(module.get()).starts_with("torch.distributed.");
}

}  // namespace

PyObject* OwnType(PyObject* type) {
  // Two are made where replicate is put upon fully_shard.
  constexpr int kMostMade = 4;
  for (int made = 0; made < kMostMade && IsOfDistributed(type); ++made) {
    // Made classes have two bases: one of torch's and the module's own class.
    // Classes that torch.distributed itself defines have not.
    const Ref bases = Attribute(type, "__bases__");
    if (!bases || !PyTuple_Check(bases.get()) ||
        PyTuple_Size(bases.get()) != 2 ||
        !IsOfDistributed(PyTuple_GetItem(bases.get(), 0))) {
      break;
    }
    type = PyTuple_GetItem(bases.get(), 1);
  }
  return type;
}

}  // namespace traincheck::agent
