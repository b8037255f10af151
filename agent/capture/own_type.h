// The class of a module as its author knows it. torch's fully_shard, replicate
// and the like give a module a class of their own making, "FSDPNet" in one of
// their files, of a base of theirs and the module's class.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_OWN_TYPE_H_
#define TRAINCHECK_AGENT_CAPTURE_OWN_TYPE_H_

#include "agent/cpython/python_ref.h"

namespace traincheck::agent {

// Borrowed from `type`, which lives on.
PyObject* OwnType(PyObject* type);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_OWN_TYPE_H_
