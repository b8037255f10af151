#include "agent/capture/argument_parsing.h"
#include "agent/capture/content.h"
#include "agent/capture/module_functions.h"

namespace traincheck::agent {
namespace {

PyObject* RecordBytesFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"point", "variable", "data", "dtype",
                                      nullptr};
  unsigned char point;
  unsigned int variable;
  const char* data;
  Py_ssize_t size;
  const char* dtype;
  if (!Parse(args, kwargs, "bIy#s", names, &point, &variable, &data, &size,
             &dtype)) {
    return nullptr;
  }
  RecordBytes(static_cast<StatePoint>(point), variable,
              {data, static_cast<size_t>(size)}, dtype);
  return None();
}

PyObject* DigestsFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"tensors", nullptr};
  PyObject* tensors;
  std::string digests;
  if (!Parse(args, kwargs, "O", names, &tensors)) return nullptr;
  switch (ReadDigests(tensors, &digests)) {
    case DigestsRead::kAll:
      return PyBytes_FromStringAndSize(digests.data(),
                                       static_cast<Py_ssize_t>(digests.size()));
    case DigestsRead::kNotAll:
      return None();
    case DigestsRead::kNoSequence:
      break;
  }
  return nullptr;
}

PyObject* RecordCheckpointFunction(PyObject*, PyObject* args,
                                   PyObject* kwargs) {
  static const char* const names[] = {"point",     "keys",     "values",
                                      "variables", "left_out", nullptr};
  unsigned char point;
  PyObject *keys, *values, *variables;
  unsigned long long left_out = 0;
  CheckpointContent content;
  if (!Parse(args, kwargs, "bOOO|K", names, &point, &keys, &values, &variables,
             &left_out) ||
      !Texts(keys, &content.keys) || !Numbers(variables, &content.variables)) {
    return nullptr;
  }
  content.left_out = left_out;
  const bool done =
      RecordCheckpoint(static_cast<StatePoint>(point), content, values);
  return done ? None() : nullptr;
}

}  // namespace

PyMethodDef kContentFunctions[] = {
    WithKeywords("record_bytes", RecordBytesFunction),
    WithKeywords("digests", DigestsFunction),
    WithKeywords("record_checkpoint", RecordCheckpointFunction),
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
