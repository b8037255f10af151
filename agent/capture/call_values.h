// Python values as fields of a record: RECORD_FORMAT.md, "Values". No code of
// the user's runs: classes are compared, never asked, and attributes of
// tensors are read past their overrides.
//
// Threads: GIL held.
#ifndef TRAINCHECK_AGENT_CAPTURE_CALL_VALUES_H_
#define TRAINCHECK_AGENT_CAPTURE_CALL_VALUES_H_

#include <string_view>

#include "agent/capture/definitions.h"
#include "agent/cpython/python_api.h"
#include "proto/record_writer.h"

namespace traincheck::agent {

// What a record may carry of a value, besides its kind.
struct ValueDetail {
  bool text = false;      // strings, at most kMaxTextBytes of each
  bool digest = false;    // of the content of tensors
  bool autograd = false;  // does a tensor require a gradient, has it a grad_fn
};
inline constexpr size_t kMaxTextBytes = 128;

// Is it the name of something that no record may carry the text of ("api_key",
// "hub_token", "password")?
bool IsSecretName(std::string_view name);

// Puts values into one record, as long as they fit and their names and classes
// can be defined; then kContentCut.
// REQUIRES: a TorchApi::WithoutOverrides lives, if a detail but text is wanted.
class ValueWriter {
 public:
  ValueWriter(FieldWriter* out, Definitions* definitions)
      : out_(*out), definitions_(*definitions) {}

  // The value behind the field that names it; of a list, tuple or dict its
  // length and the first elements, one level down. False: it did not fit, and
  // nothing more does.
  bool Write(Field name, uint64_t number, PyObject* value, ValueDetail detail);
  // The same under a name that has no number of its own: "args[2]".
  bool WriteNamed(std::string_view name, PyObject* value, ValueDetail detail);

  bool full() const { return full_; }

 private:
  bool Finish(size_t from);
  void Value(PyObject* value, ValueDetail detail);
  bool Plain(PyObject* value, ValueDetail detail);
  void Text(std::string_view text, PyObject* value, ValueDetail detail);
  void Integer(PyObject* value);
  void Tensor(PyObject* value, ValueDetail detail);
  void Sequence(PyObject* value, ValueDetail detail);
  void Mapping(PyObject* value, ValueDetail detail);
  void Type(PyObject* value);

  FieldWriter& out_;
  Definitions& definitions_;
  bool full_ = false;
  bool nameless_ = false;  // the value has a name or class without a number
};

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_CALL_VALUES_H_
