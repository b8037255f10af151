// What the records of one function's calls tell besides begin and end:
// arguments, the result, digests. Set by the capture plan; see hooks/plan.py.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_CALL_CONTENT_H_
#define TRAINCHECK_AGENT_CAPTURE_CALL_CONTENT_H_

#include <cstddef>
#include <vector>

#include "agent/capture/call_values.h"
#include "agent/cpython/python_ref.h"
#include "proto/record_writer.h"

namespace traincheck::agent {

// Arguments as vectorcall passes them.
struct CallArguments {
  PyObject* const* values = nullptr;
  size_t nargsf = 0;
  PyObject* names = nullptr;

  // Null: there is no positional one.
  PyObject* first() const {
    return VectorcallArgumentCount(nargsf) > 0 ? values[0] : nullptr;
  }
};

// Content of a record, at most; the ring holds thousands of them.
inline constexpr size_t kMaxContentBytes = 1024;

struct CallContent {
  struct Parameter {
    Ref name;             // str, interned
    Py_ssize_t position;  // -1: by keyword only
    ValueDetail detail;
  };
  // In the order of the FunctionDef.
  std::vector<Parameter> parameters;
  // Further positional arguments, and keywords that no parameter has, are told
  // under names of their own. -1: not told; else where they begin.
  Py_ssize_t rest = -1;
  ValueDetail rest_detail;
  bool returns = false;
  // Is a digest or autograd's view of a tensor wanted anywhere?
  bool reads_attributes = false;
  ValueDetail return_detail;

  void WriteArguments(const CallArguments& arguments, FieldWriter* out,
                      Definitions* definitions) const;
  // REQUIRES: result is not null.
  void WriteReturn(PyObject* result, FieldWriter* out,
                   Definitions* definitions) const;
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CALL_CONTENT_H_
