// The definition table of one process: what its small ids mean. Filled from
// the definition records of its ring 0.
//
// Threads: one object, one thread at a time. Pointers stay valid while the
// table lives; a definition that comes again changes what they point to.
#ifndef TRAINCHECK_INVARIANTS_TRACE_DEFINITIONS_H_
#define TRAINCHECK_INVARIANTS_TRACE_DEFINITIONS_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "invariants/trace/archive.h"
#include "invariants/trace/call_category.h"
#include "proto/record_reader.h"

namespace traincheck {

struct FunctionInfo {
  std::string name;
  CallCategory category;
  std::vector<std::string> roles;  // narrow to general
  // The fields that name the parameters which calls tell: see call_values.h.
  std::string parameters = {};

  void Fields(Archive& archive);
};

struct ObjectInfo {
  std::string class_name;
  std::vector<std::string> bases;  // the MRO
  ObjectKind kind = ObjectKind::kUnknown;
  std::string path;
  uint32_t root = 0;     // 0: it is a root itself, or not known
  uint32_t wrapped = 0;  // 0: wraps nothing

  void Fields(Archive& archive);
};

struct VariableInfo {
  std::string name;  // inside its root
  std::string root_class;
  std::string owner_class;
  uint32_t root = 0;
  VariableKind kind = VariableKind::kUnknown;
  bool trainable = false;
  uint64_t identity_epoch = 0;
  std::string dtype;            // "torch.float32"; "" where it is not told
  std::vector<uint64_t> shape;  // likewise
  // Equal for names that share a storage; 0: shares none.
  uint64_t alias_group = 0;
  // That it copies (a moving average); 0: none.
  uint32_t shadow_of = 0;
  // What parallel training says of it: "partition_dim=0", "placement.dp=R".
  std::vector<std::string> attributes;

  // "Net.fc.weight": the same on every rank.
  std::string FullName() const { return root_class + "." + name; }
  // "torch.nn.modules.batchnorm.BatchNorm2d.running_mean": what all modules of
  // its class have.
  std::string ClassRole() const {
    return owner_class + "." + name.substr(name.rfind('.') + 1);
  }

  void Fields(Archive& archive);
};

struct ReplicaGroupInfo {
  std::string evidence;
  uint32_t wrapper = 0;
  std::vector<int32_t> ranks;  // sorted
  std::vector<uint32_t> variables;

  void Fields(Archive& archive);
};

struct ProcessGroupInfo {
  std::string name;
  std::string backend;
  std::vector<int32_t> ranks;  // in the order of the group
  // Where it is a dimension of a DeviceMesh.
  uint32_t mesh = 0;  // number of the mesh in this process; 0: of none
  uint32_t mesh_dimension = 0;
  std::string mesh_name;  // of the dimension; "": it has none

  void Fields(Archive& archive);
};

struct ProcessInfo {
  ProcessKind kind = ProcessKind::kUnknown;
  uint32_t attempt = 0;
  std::string host;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  // Of a loader's worker.
  uint64_t worker = 0;
  uint32_t owner_pid = 0;
  uint64_t owner_ticks = 0;
  std::optional<uint64_t> pass_seed;   // equal for the workers of one pass
  std::optional<uint64_t> owner_step;  // that was open when it was forked

  void Fields(Archive& archive);
};

// What the definitions of a process may take, about, in memory. The agent's own
// limits end far below; but records come from whoever may write them, and many
// short ones may name one long text.
inline constexpr size_t kMaxDefinitionBytes = 128u << 20;

class ProcessDefinitions {
 public:
  // Takes over a definition record. False: malformed or full(), nothing
  // changed. REQUIRES: IsDefinition(record.header().type).
  bool Apply(const RecordReader& record);

  // About what they take.
  size_t bytes() const { return bytes_; }
  // They have reached kMaxDefinitionBytes: no more are taken over.
  bool full() const { return bytes_ >= kMaxDefinitionBytes; }

  // Is there a definition under the id of this record? Of a list in parts:
  // is this part known, or cannot follow on what is?
  bool Knows(const RecordReader& record) const;

  // Null where the id is not known.
  const FunctionInfo* Function(uint32_t id) const;
  const std::unordered_map<uint32_t, FunctionInfo>& functions() const {
    return functions_;
  }
  const ObjectInfo* Object(uint32_t id) const;
  const VariableInfo* Variable(uint32_t id) const;
  // "" where the id is not known.
  const std::string& String(uint32_t id) const;
  // "train.py:12"; "" where the id is not known.
  std::string Site(uint32_t id) const;
  // The user's lines through which a site was reached first, innermost first:
  // "train.py:40 in fit".
  std::vector<std::string> CallersOf(uint32_t site) const;

  // (optimizer, parameter group) -> variables.
  using Holds = std::map<std::pair<uint32_t, uint32_t>, std::vector<uint32_t>>;
  const Holds& holds() const { return holds_; }
  const std::map<uint32_t, ReplicaGroupInfo>& groups() const { return groups_; }
  // Grows whenever one of the groups changes; from 0, also after a restore.
  uint64_t groups_revision() const { return groups_revision_; }
  const std::map<uint32_t, ProcessGroupInfo>& process_groups() const {
    return process_groups_;
  }
  const std::unordered_map<uint32_t, VariableInfo>& variables() const {
    return variables_;
  }
  const std::unordered_map<uint32_t, ObjectInfo>& objects() const {
    return objects_;
  }
  const ProcessInfo& process() const { return process_; }

  void Fields(Archive& archive);

 private:
  struct Parsed;
  template <typename Map, typename Value>
  void Put(const typename Map::key_type& id, Value value, Map* map);
  bool StoreHold(uint32_t optimizer, uint32_t group, const Parsed& parsed);
  bool PutPart(const Parsed& parsed, std::vector<uint32_t>* list);
  size_t CountBytes();
  bool Store(RecordType type, uint32_t id, uint32_t aux, Parsed* parsed);
  bool Read(FieldReader fields, Parsed* parsed) const;
  bool StoreGroup(uint32_t id, Parsed* parsed);
  void ReadText(const FieldReader& field, Parsed* parsed) const;
  void ReadNumber(const FieldReader& field, Parsed* parsed) const;
  static bool ReadVariableNumber(const FieldReader& field,
                                 VariableInfo* variable);
  static void ReadProcessNumber(const FieldReader& field, ProcessInfo* process);

  struct SiteInfo {
    std::string file;
    uint64_t line = 0;
    std::string function;
    uint32_t caller = 0;  // a site; 0: none
    void Fields(Archive& archive);
  };

  std::unordered_map<uint32_t, std::string> strings_;
  std::unordered_map<uint32_t, FunctionInfo> functions_;
  std::unordered_map<uint32_t, SiteInfo> sites_;
  std::unordered_map<uint32_t, ObjectInfo> objects_;
  std::unordered_map<uint32_t, VariableInfo> variables_;
  Holds holds_;
  std::map<uint32_t, ReplicaGroupInfo> groups_;
  uint64_t groups_revision_ = 0;
  std::map<uint32_t, ProcessGroupInfo> process_groups_;
  ProcessInfo process_;
  size_t bytes_ = 0;  // counted anew when restored
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRACE_DEFINITIONS_H_
