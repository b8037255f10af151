#include "agent/capture/model_definitions.h"

#include <algorithm>
#include <map>
#include <utility>

#include "agent/capture/definitions.h"
#include "agent/capture/log.h"
#include "agent/capture/object_table.h"
#include "agent/capture/own_type.h"
#include "agent/capture/process_recorder.h"
#include "agent/cpython/python_ref.h"
#include "agent/torch/storage_identity.h"
#include "agent/torch/tensor_view.h"
#include "agent/torch/torch_api.h"

namespace traincheck::agent {
namespace {

// What a variable was last defined as, to write it again only if that changes.
struct Variable {
  uint32_t id = 0;
  uint32_t generation = 0;
  uint64_t fingerprint = 0;
};
constexpr auto kKeep = Definition::NoRoom::kKeep;
// In one record, each in at most 7 of its 65,528 bytes: room is left for ranks.
constexpr size_t kMaxVariablesInPart = 4000;

using VariableKey = std::pair<uint32_t, std::string>;  // root, full name

std::map<VariableKey, Variable>& Variables() {
  static auto* variables = new std::map<VariableKey, Variable>;
  return *variables;
}

std::vector<uint32_t>& Hashes() {  // by variable
  static auto* hashes = new std::vector<uint32_t>;
  return *hashes;
}

// Commits `def` unless `entry` was last defined with the same content. Returns
// the number under which the entry is known now. Hooks call this at every look
// at a model, which mostly finds nothing new.
template <typename Entry>
uint32_t CommitIfNew(Definition& def, RecordType type, Entry* entry) {
  const bool defined = entry->generation == g_generation;
  if (defined && entry->fingerprint == def.fingerprint()) return entry->id;
  // Then what was defined before still holds.
  if (!def.Commit(type)) return defined ? entry->id : 0;
  entry->generation = g_generation;
  entry->fingerprint = def.fingerprint();
  return entry->id;
}

// Rules are about classes of torch that the user's class derives from, so all
// bases are named, without object.
void PutClasses(PyObject* object, Definition* def) {
  auto* type = reinterpret_cast<PyObject*>(Py_TYPE(object));
  PyObject* own = OwnType(type);
  def->Text(Field::kClass, QualifiedTypeName(own));
  const Ref mro = Attribute(type, "__mro__");
  const Py_ssize_t classes =
      mro && PyTuple_Check(mro.get()) ? PyTuple_Size(mro.get()) : 0;
  for (Py_ssize_t i = 1; i + 1 < classes; ++i) {
    PyObject* base = PyTuple_GetItem(mro.get(), i);
    if (base != own) def->Text(Field::kBaseClass, QualifiedTypeName(base));
  }
}

// The variables from `begin` on, as many as go into one record.
void PutPart(const std::vector<uint32_t>& variables, size_t begin,
             Definition* def) {
  // The first part replaces what was said before; those behind it go on with
  // it.
  if (begin != 0) def->Number(Field::kPartBegin, begin);
  const size_t end = std::min(begin + kMaxVariablesInPart, variables.size());
  for (size_t i = begin; i < end; ++i) {
    def->Number(Field::kVariable, variables[i]);
  }
}

void LogNoRoom(const char* what) {
  LogOnce(what, std::string("no room to define a ") + what);
}

}  // namespace

// The number is that of the object's identity and stays when its description
// changes.
uint32_t DefineObject(PyObject* object, const ObjectFacts& facts) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return 0;
  ObjectTable::Object* entry = ObjectTable::Get().Number(object);
  if (entry == nullptr) return 0;
  Definition def(process->definitions(), entry->id, 0, kKeep);
  PutClasses(object, &def);
  def.Number(Field::kObjectKind, facts.kind);
  if (!facts.path.empty()) def.Text(Field::kPath, facts.path);
  if (facts.root != 0) def.Number(Field::kRootObject, facts.root);
  if (facts.wrapped != 0) def.Number(Field::kWrappedObject, facts.wrapped);
  return CommitIfNew(def, RecordType::kObjectDef, entry);
}

// FNV-1a.
// Ranks choose by it whose turn a large tensor is, so it must be the same on
// all of them.
uint32_t VariableNameHash(std::string_view name) {
  uint32_t hash = 2166136261u;
  for (const char c : name) {
    hash = (hash ^ static_cast<uint8_t>(c)) * 16777619u;
  }
  return hash;
}

uint32_t VariableHash(uint32_t variable) {
  const std::vector<uint32_t>& hashes = Hashes();
  return variable < hashes.size() ? hashes[variable] : 0;
}

// Defined again when the type, the shape, requires_grad or the names change;
// its records go on under the same number.
uint32_t DefineVariable(PyObject* tensor, const VariableFacts& facts) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return 0;
  // Numbers outlive forks. A child defines them anew, because its generation is
  // another.
  static uint32_t last_id = 0;
  // An optimizer's state has parameters of several roots in its names.
  const std::string name = facts.root_class + '.' + facts.name;
  Variable& entry = Variables()[{facts.root, name}];
  if (entry.id == 0) {
    entry.id = ++last_id;
    Hashes().resize(entry.id + 1);
    Hashes()[entry.id] = VariableNameHash(name);
  }
  const TorchApi::WithoutOverrides direct;
  const TensorFacts tensor_facts = FactsOf(tensor);
  Definition def(process->definitions(), entry.id, 0, kKeep);
  def.Text(Field::kName, facts.name);
  def.Text(Field::kRootClass, facts.root_class);
  def.Number(Field::kRootObject, facts.root);
  def.Number(Field::kVariableKind, facts.kind);
  def.Text(Field::kOwnerClass, facts.owner_class);
  def.Text(Field::kDtype, tensor_facts.dtype);
  def.Text(Field::kDevice, tensor_facts.device);
  for (const int64_t size : tensor_facts.shape) {
    def.Number(Field::kDimension, static_cast<uint64_t>(size));
  }
  def.Number(Field::kTrainable, tensor_facts.requires_grad ? 1 : 0);
  def.Number(Field::kAliasGroup, facts.alias_group);
  def.Number(Field::kIdentityEpoch, facts.identity_epoch);
  if (facts.shadow_of != 0) def.Number(Field::kShadowOf, facts.shadow_of);
  for (const std::string& attribute : facts.attributes) {
    def.Text(Field::kAttribute, attribute);
  }
  return CommitIfNew(def, RecordType::kVariableDef, &entry);
}

// Optimizers hold more variables than a record has room for: the list comes in
// parts.
void DefineHold(uint32_t optimizer, uint32_t group,
                const std::vector<uint32_t>& variables) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return;
  size_t begin = 0;
  // At least once: a group may have become empty, and what it held before would
  // stay.
  do {
    Definition def(process->definitions(), optimizer, group, kKeep);
    PutPart(variables, begin, &def);
    if (!def.Commit(RecordType::kHoldDef)) return LogNoRoom("parameter group");
    begin += kMaxVariablesInPart;
  } while (begin < variables.size());
}

void DefineReplicaGroup(const ReplicaGroup& group) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return;
  size_t begin = 0;
  // At least once: a group without variables still has its ranks.
  do {
    Definition def(process->definitions(), group.id, 0, kKeep);
    if (begin == 0) {
      def.Text(Field::kEvidence, group.evidence);
      if (group.wrapper != 0) def.Number(Field::kWrapperObject, group.wrapper);
      for (const uint32_t rank : group.ranks) {
        def.Number(Field::kMemberRank, rank);
      }
    }
    PutPart(group.variables, begin, &def);
    if (!def.Commit(RecordType::kReplicaGroupDef)) {
      return LogNoRoom("replica group");
    }
    begin += kMaxVariablesInPart;
  } while (begin < group.variables.size());
}

// Collectives refer to the group by its number; ranks are global ones.
void DefineProcessGroup(const ProcessGroup& group) {
  ProcessRecorder* process = ProcessRecorder::Get();
  if (process == nullptr) return;
  Definition def(process->definitions(), group.id, 0, kKeep);
  def.Text(Field::kName, group.name);
  def.Text(Field::kBackend, group.backend);
  if (group.mesh != 0) {
    def.Number(Field::kMesh, group.mesh);
    def.Number(Field::kMeshDimension, group.mesh_dimension);
    def.Text(Field::kMeshName, group.mesh_name);
  }
  for (const uint32_t rank : group.ranks) {
    def.Number(Field::kMemberRank, rank);
  }
  if (!def.Commit(RecordType::kProcessGroupDef)) LogNoRoom("process group");
}

// Two parameters that share memory (tied weights) have the same key.
uint64_t StorageKey(PyObject* tensor) {
  const TorchApi::WithoutOverrides direct;
  const Ref local = LocalTensor(tensor);
  if (!TorchApi::IsTensor(local.get())) return 0;
  return StorageNumber(local.get(), nullptr);
}

}  // namespace traincheck::agent
