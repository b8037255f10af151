#include "agent/capture/argument_parsing.h"
#include "agent/capture/model_definitions.h"
#include "agent/capture/module_functions.h"
#include "agent/capture/object_table.h"

namespace traincheck::agent {
namespace {

PyObject* ObjectId(PyObject*, PyObject* value) {
  return PyLong_FromUnsignedLong(ObjectTable::Get().IdOf(value));
}

PyObject* DefineObjectFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"value", "kind",    "path",
                                      "root",  "wrapped", nullptr};
  PyObject* value;
  const char* path = "";
  ObjectFacts facts;
  // The formats I and K check no range, here and below: numbers come from hooks
  // of our own.
  if (!Parse(args, kwargs, "OI|sII", names, &value, &facts.kind, &path,
             &facts.root, &facts.wrapped)) {
    return nullptr;
  }
  facts.path = path;
  return PyLong_FromUnsignedLong(DefineObject(value, facts));
}

PyObject* DefineVariableFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {
      "tensor",     "name",        "root_class",  "root",
      "kind",       "owner_class", "alias_group", "identity_epoch",
      "attributes", "shadow_of",   nullptr};
  PyObject* tensor;
  PyObject* attributes = nullptr;
  const char *name, *root_class, *owner_class;
  unsigned long long alias_group;
  VariableFacts facts;
  if (!Parse(args, kwargs, "OssIIsK|IOI", names, &tensor, &name, &root_class,
             &facts.root, &facts.kind, &owner_class, &alias_group,
             &facts.identity_epoch, &attributes, &facts.shadow_of) ||
      (attributes != nullptr && !Texts(attributes, &facts.attributes))) {
    return nullptr;
  }
  facts.name = name;
  facts.root_class = root_class;
  facts.owner_class = owner_class;
  facts.alias_group = alias_group;
  return PyLong_FromUnsignedLong(DefineVariable(tensor, facts));
}

PyObject* DefineHoldFunction(PyObject*, PyObject* args, PyObject* kwargs) {
  static const char* const names[] = {"optimizer", "group", "variables",
                                      nullptr};
  unsigned int optimizer, group;
  PyObject* sequence;
  std::vector<uint32_t> variables;
  if (!Parse(args, kwargs, "IIO", names, &optimizer, &group, &sequence) ||
      !Numbers(sequence, &variables)) {
    return nullptr;
  }
  DefineHold(optimizer, group, variables);
  return None();
}

PyObject* DefineReplicaGroupFunction(PyObject*, PyObject* args,
                                     PyObject* kwargs) {
  static const char* const names[] = {"group", "evidence",  "wrapper",
                                      "ranks", "variables", nullptr};
  ReplicaGroup group;
  const char* evidence;
  PyObject *ranks, *variables;
  if (!Parse(args, kwargs, "IsIOO", names, &group.id, &evidence, &group.wrapper,
             &ranks, &variables) ||
      !Numbers(ranks, &group.ranks) || !Numbers(variables, &group.variables)) {
    return nullptr;
  }
  group.evidence = evidence;
  DefineReplicaGroup(group);
  return None();
}

PyObject* DefineProcessGroupFunction(PyObject*, PyObject* args,
                                     PyObject* kwargs) {
  static const char* const names[] = {"group",     "name", "backend",
                                      "ranks",     "mesh", "mesh_dimension",
                                      "mesh_name", nullptr};
  ProcessGroup group;
  const char *name, *backend, *mesh_name = "";
  PyObject* ranks;
  if (!Parse(args, kwargs, "IssO|IIs", names, &group.id, &name, &backend,
             &ranks, &group.mesh, &group.mesh_dimension, &mesh_name) ||
      !Numbers(ranks, &group.ranks)) {
    return nullptr;
  }
  group.name = name;
  group.backend = backend;
  group.mesh_name = mesh_name;
  DefineProcessGroup(group);
  return None();
}

PyObject* StorageKeyFunction(PyObject*, PyObject* tensor) {
  return PyLong_FromUnsignedLongLong(StorageKey(tensor));
}

}  // namespace

PyMethodDef kDefineFunctions[] = {
    {"object_id", ObjectId, METH_O, nullptr},
    WithKeywords("define_object", DefineObjectFunction),
    WithKeywords("define_variable", DefineVariableFunction),
    WithKeywords("define_hold", DefineHoldFunction),
    WithKeywords("define_replica_group", DefineReplicaGroupFunction),
    WithKeywords("define_process_group", DefineProcessGroupFunction),
    {"storage_key", StorageKeyFunction, METH_O, nullptr},
    {nullptr, nullptr, 0, nullptr},
};

}  // namespace traincheck::agent
