// Defines what hooks find out about models and optimizers: objects, variables,
// which optimizer holds which, which ranks replicate which. What was defined
// before is written again only where it differs.
//
// Threads: GIL held. 0 everywhere: not defined (recording is off, or ring 0
// has no room now).
#ifndef TRAINCHECK_AGENT_CAPTURE_MODEL_DEFINITIONS_H_
#define TRAINCHECK_AGENT_CAPTURE_MODEL_DEFINITIONS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "agent/cpython/python_api.h"

namespace traincheck::agent {

struct ObjectFacts {
  uint32_t kind = 0;  // ObjectKind
  std::string path;
  uint32_t root = 0;
  uint32_t wrapped = 0;
};
uint32_t DefineObject(PyObject* object, const ObjectFacts& facts);

struct VariableFacts {
  std::string name;
  std::string root_class;
  uint32_t root = 0;
  uint32_t kind = 0;  // VariableKind
  std::string owner_class;
  uint64_t alias_group = 0;
  uint32_t identity_epoch = 0;
  uint32_t shadow_of = 0;  // variable; 0: none
  // What parallel training says of it: "partition_dim=0".
  std::vector<std::string> attributes;
};
// Of its root's class and its name: the same on every rank. 0: no such number.
uint32_t VariableHash(uint32_t variable);
// Of the variable that has this name: "Net.fc.weight".
uint32_t VariableNameHash(std::string_view name);
// Type, device and shape come from the tensor.
uint32_t DefineVariable(PyObject* tensor, const VariableFacts& facts);

void DefineHold(uint32_t optimizer, uint32_t group,
                const std::vector<uint32_t>& variables);

struct ReplicaGroup {
  uint32_t id = 0;
  std::string evidence;
  uint32_t wrapper = 0;
  std::vector<uint32_t> ranks;
  std::vector<uint32_t> variables;
};
void DefineReplicaGroup(const ReplicaGroup& group);

struct ProcessGroup {
  uint32_t id = 0;
  std::string name;
  std::string backend;
  std::vector<uint32_t> ranks;
  // Where it is a dimension of a DeviceMesh.
  uint32_t mesh = 0;  // 0: of none
  uint32_t mesh_dimension = 0;
  std::string mesh_name;  // of the dimension
};
void DefineProcessGroup(const ProcessGroup& group);

// A number given once to the tensor's storage, held weakly; 0: unreadable. Of a
// DTensor: of its local shard.
uint64_t StorageKey(PyObject* tensor);

}  // namespace traincheck::agent

#endif  // TRAINCHECK_AGENT_CAPTURE_MODEL_DEFINITIONS_H_
