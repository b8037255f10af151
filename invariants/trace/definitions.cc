#include "invariants/trace/definitions.h"

#include <algorithm>

#include "base/utf8.h"

namespace traincheck {

namespace {

constexpr size_t kMaxCallers = 8;

// Where in its list the record's part begins (kPartBegin); 0: at the begin.
// Lists of variables come in several records, because one record has not room
// for those of a large model.
uint64_t PartBegin(FieldReader fields) {
  while (fields.Next()) {
    if (fields.field() == Field::kPartBegin) return fields.unsigned_value();
  }
  return 0;
}

// Is the part that begins there known, or does it not follow on the list?
// `list` is null where there is none yet. Either way it is not new, and waits
// for its place in time (ProcessReader::DefineNew).
bool KnowsPart(const std::vector<uint32_t>* list, uint64_t begin) {
  if (begin == 0) return list != nullptr;
  return list == nullptr || list->size() != begin;
}

// What a table takes for each entry, beside the entry itself.
constexpr size_t kNodeBytes = 32;

// About what a definition takes: itself, and texts and lists as in a saved
// state. A text counts wherever it is named: many records of a few bytes may
// name one long text, so that the bytes that came bound nothing.
template <typename Value>
size_t BytesOf(Value& value) {
  Archive archive;
  archive(value);
  return archive.TakeBytes().size() + sizeof value + kNodeBytes;
}

template <typename Map>
size_t BytesOfAll(Map& map) {
  size_t bytes = 0;
  for (auto& [id, value] : map) bytes += BytesOf(value);
  return bytes;
}

// What a list takes from element `begin` on, with its length. A list that comes
// in many small parts is not written anew for each of them.
size_t BytesFrom(size_t begin, std::vector<uint32_t>& list) {
  Archive archive;
  uint64_t length = list.size();
  archive(length);
  for (size_t i = begin; i < list.size(); ++i) archive(list[i]);
  return archive.TakeBytes().size();
}

// Puts a part where it belongs. False: one before it is missing.
bool StorePart(uint64_t begin, const std::vector<uint32_t>& part,
               std::vector<uint32_t>* list) {
  if (list == nullptr || begin > list->size()) return false;
  // A part that comes again replaces what stood from there on.
  list->resize(begin);
  list->insert(list->end(), part.begin(), part.end());
  return true;
}

template <typename Map>
auto Find(Map& map, const typename Map::key_type& id) {
  const auto found = map.find(id);
  return found == map.end() ? nullptr : &found->second;
}

}  // namespace

// Everything that the fields of one definition may say.
struct ProcessDefinitions::Parsed {
  std::string text;
  FunctionInfo function;
  SiteInfo site;
  ObjectInfo object;
  VariableInfo variable;
  ReplicaGroupInfo group;
  ProcessGroupInfo process_group;
  ProcessInfo process;
  std::vector<uint32_t> variables;
  uint64_t part_begin = 0;
};

// A field has one meaning, whatever record it is in, but several records may
// have it. It is put into each part of Parsed that it may belong to; Store
// takes the part that the type of the record asks for.
void ProcessDefinitions::ReadText(const FieldReader& field,
                                  Parsed* parsed) const {
  const std::string& text =
      String(static_cast<uint32_t>(field.unsigned_value()));
  switch (field.field()) {
    case Field::kName:
      parsed->function.name = parsed->variable.name = text;
      parsed->process_group.name = text;
      return;
    case Field::kCategory:
      parsed->function.category = text;
      return;
    case Field::kRole:
      parsed->function.roles.push_back(text);
      return;
    case Field::kFile:
      parsed->site.file = text;
      return;
    case Field::kFunctionName:
      parsed->site.function = text;
      return;
    case Field::kClass:
      parsed->object.class_name = text;
      return;
    case Field::kBaseClass:
      parsed->object.bases.push_back(text);
      return;
    case Field::kPath:
      parsed->object.path = text;
      return;
    case Field::kOwnerClass:
      parsed->variable.owner_class = text;
      return;
    case Field::kDtype:
      parsed->variable.dtype = text;
      return;
    case Field::kRootClass:
      parsed->variable.root_class = text;
      return;
    case Field::kEvidence:
      parsed->group.evidence = text;
      return;
    case Field::kBackend:
      parsed->process_group.backend = text;
      return;
    case Field::kMeshName:
      parsed->process_group.mesh_name = text;
      return;
    case Field::kAttribute:
      parsed->variable.attributes.push_back(text);
      return;
    default:
      return;
  }
}

void ProcessDefinitions::ReadNumber(const FieldReader& field,
                                    Parsed* parsed) const {
  const uint64_t value = field.unsigned_value();
  const auto id = static_cast<uint32_t>(value);
  switch (field.field()) {
    case Field::kLine:
      parsed->site.line = value;
      return;
    case Field::kCallerSite:
      parsed->site.caller = id;
      return;
    case Field::kObjectKind:
      parsed->object.kind = static_cast<ObjectKind>(value);
      return;
    case Field::kRootObject:
      parsed->object.root = parsed->variable.root = id;
      return;
    case Field::kWrappedObject:
      parsed->object.wrapped = id;
      return;
    case Field::kVariable:
      parsed->variables.push_back(id);
      return;
    case Field::kPartBegin:
      parsed->part_begin = value;
      return;
    case Field::kMemberRank:
      parsed->group.ranks.push_back(static_cast<int32_t>(value));
      parsed->process_group.ranks.push_back(static_cast<int32_t>(value));
      return;
    case Field::kMesh:
      parsed->process_group.mesh = id;
      return;
    case Field::kMeshDimension:
      parsed->process_group.mesh_dimension = id;
      return;
    case Field::kWrapperObject:
      parsed->group.wrapper = id;
      return;
    default:
      if (!ReadVariableNumber(field, &parsed->variable)) {
        ReadProcessNumber(field, &parsed->process);
      }
  }
}

bool ProcessDefinitions::ReadVariableNumber(const FieldReader& field,
                                            VariableInfo* variable) {
  const uint64_t value = field.unsigned_value();
  switch (field.field()) {
    case Field::kVariableKind:
      variable->kind = static_cast<VariableKind>(value);
      return true;
    case Field::kTrainable:
      variable->trainable = value != 0;
      return true;
    case Field::kDimension:
      variable->shape.push_back(value);
      return true;
    case Field::kAliasGroup:
      variable->alias_group = value;
      return true;
    case Field::kShadowOf:
      variable->shadow_of = static_cast<uint32_t>(value);
      return true;
    case Field::kIdentityEpoch:
      variable->identity_epoch = value;
      return true;
    default:
      return false;
  }
}

void ProcessDefinitions::ReadProcessNumber(const FieldReader& field,
                                           ProcessInfo* process) {
  const uint64_t value = field.unsigned_value();
  switch (field.field()) {
    case Field::kProcessKind:
      process->kind = static_cast<ProcessKind>(value);
      return;
    case Field::kAttempt:
      process->attempt = static_cast<uint32_t>(value);
      return;
    case Field::kStartTicks:
      process->start_ticks = value;
      return;
    case Field::kWorkerId:
      process->worker = value;
      return;
    case Field::kOwnerPid:
      process->owner_pid = static_cast<uint32_t>(value);
      return;
    case Field::kOwnerTicks:
      process->owner_ticks = value;
      return;
    case Field::kPassSeed:
      process->pass_seed = value;
      return;
    case Field::kOwnerStep:
      process->owner_step = value;
      return;
    default:
      return;
  }
}

// Reads all fields before any is stored: a record that breaks off changes
// nothing in the table.
bool ProcessDefinitions::Read(FieldReader fields, Parsed* parsed) const {
  std::string_view rest = fields.rest();
  while (fields.Next()) {
    // The parameters stay undecoded, from the first one to the end of the
    // record: few calls are ever asked for their arguments.
    if (fields.field() == Field::kParameter &&
        parsed->function.parameters.empty()) {
      parsed->function.parameters = std::string(rest);
    }
    rest = fields.rest();
    if (fields.field() == Field::kText) {
      // As the agent cuts it.
      parsed->text = ToUtf8(fields.bytes_value().substr(0, kMaxStringBytes));
    } else if (fields.field() == Field::kHost) {
      parsed->process.host = ToUtf8(fields.bytes_value());
    }
    ReadText(fields, parsed);
    ReadNumber(fields, parsed);
  }
  return fields.ok();
}

template <typename Map, typename Value>
void ProcessDefinitions::Put(const typename Map::key_type& id, Value value,
                             Map* map) {
  const auto [entry, is_new] = map->try_emplace(id);
  if (!is_new) bytes_ -= BytesOf(entry->second);
  // Assigned, so that the entry stays where it is: open calls and the facts
  // keep pointers into the table.
  entry->second = std::move(value);
  bytes_ += BytesOf(entry->second);
}

size_t ProcessDefinitions::CountBytes() {
  return BytesOfAll(strings_) + BytesOfAll(functions_) + BytesOfAll(sites_) +
         BytesOfAll(objects_) + BytesOfAll(variables_) + BytesOfAll(holds_) +
         BytesOfAll(groups_) + BytesOfAll(process_groups_);
}

bool ProcessDefinitions::Store(RecordType type, uint32_t id, uint32_t aux,
                               Parsed* parsed) {
  switch (type) {
    case RecordType::kStringDef:
      Put(id, std::move(parsed->text), &strings_);
      return true;
    case RecordType::kFunctionDef:
      Put(id, std::move(parsed->function), &functions_);
      return true;
    case RecordType::kSiteDef:
      Put(id, std::move(parsed->site), &sites_);
      return true;
    case RecordType::kObjectDef:
      Put(id, std::move(parsed->object), &objects_);
      return true;
    case RecordType::kVariableDef:
      Put(id, std::move(parsed->variable), &variables_);
      return true;
    case RecordType::kHoldDef:
      return StoreHold(id, aux, *parsed);
    case RecordType::kReplicaGroupDef:
      return StoreGroup(id, parsed);
    case RecordType::kProcessDef:
      // One for the process, so it is left out of the count of bytes.
      process_ = std::move(parsed->process);
      process_.pid = id;
      return true;
    case RecordType::kProcessGroupDef:
      Put(id, std::move(parsed->process_group), &process_groups_);
      return true;
    default:
      return false;
  }
}

bool ProcessDefinitions::StoreHold(uint32_t optimizer, uint32_t group,
                                   const Parsed& parsed) {
  const std::pair id(optimizer, group);
  // The first part replaces the list of before. The agent defines a hold again
  // when the optimizer holds other parameters.
  if (parsed.part_begin == 0) {
    Put(id, parsed.variables, &holds_);
    return true;
  }
  return PutPart(parsed, Find(holds_, id));
}

bool ProcessDefinitions::PutPart(const Parsed& parsed,
                                 std::vector<uint32_t>* list) {
  const size_t begin = parsed.part_begin;
  const size_t before = list == nullptr ? 0 : BytesFrom(begin, *list);
  if (!StorePart(begin, parsed.variables, list)) return false;
  bytes_ += BytesFrom(begin, *list) - before;
  return true;
}

bool ProcessDefinitions::StoreGroup(uint32_t id, Parsed* parsed) {
  // Raised even if the part turns out not to fit: a needless rise only makes
  // readers look again.
  ++groups_revision_;
  if (parsed->part_begin != 0) {
    ReplicaGroupInfo* group = Find(groups_, id);
    return PutPart(*parsed, group == nullptr ? nullptr : &group->variables);
  }
  parsed->group.variables = std::move(parsed->variables);
  // A replica group is a set, which is compared with those of other ranks. The
  // ranks of a process group keep their order, by which roots and parts are
  // counted.
  std::sort(parsed->group.ranks.begin(), parsed->group.ranks.end());
  Put(id, std::move(parsed->group), &groups_);
  return true;
}

bool ProcessDefinitions::Apply(const RecordReader& record) {
  // What is refused here has no meaning in later records, so the reader reports
  // a gap for it (ProcessReader::Define).
  if (full()) return false;
  const auto& fixed = record.Get<DefinitionRecord>();
  Parsed parsed;
  if (!Read(record.Fields(), &parsed)) return false;
  return Store(record.type(), fixed.id, fixed.aux, &parsed);
}

bool ProcessDefinitions::Knows(const RecordReader& record) const {
  const auto& fixed = record.Get<DefinitionRecord>();
  switch (record.type()) {
    case RecordType::kStringDef:
      return strings_.count(fixed.id) != 0;
    case RecordType::kFunctionDef:
      return functions_.count(fixed.id) != 0;
    case RecordType::kSiteDef:
      return sites_.count(fixed.id) != 0;
    case RecordType::kObjectDef:
      return objects_.count(fixed.id) != 0;
    case RecordType::kVariableDef:
      return variables_.count(fixed.id) != 0;
    case RecordType::kHoldDef:
      return KnowsPart(Find(holds_, std::pair(fixed.id, fixed.aux)),
                       PartBegin(record.Fields()));
    case RecordType::kReplicaGroupDef: {
      const ReplicaGroupInfo* group = Find(groups_, fixed.id);
      return KnowsPart(group == nullptr ? nullptr : &group->variables,
                       PartBegin(record.Fields()));
    }
    case RecordType::kProcessGroupDef:
      return process_groups_.count(fixed.id) != 0;
    // The process's own definition is taken over at once, also when it comes
    // again.
    default:
      return false;
  }
}

const FunctionInfo* ProcessDefinitions::Function(uint32_t id) const {
  return Find(functions_, id);
}

const ObjectInfo* ProcessDefinitions::Object(uint32_t id) const {
  return Find(objects_, id);
}

const VariableInfo* ProcessDefinitions::Variable(uint32_t id) const {
  return Find(variables_, id);
}

const std::string& ProcessDefinitions::String(uint32_t id) const {
  static const std::string* const kNone = new std::string;
  const std::string* found = Find(strings_, id);
  return found ? *found : *kNone;
}

std::string ProcessDefinitions::Site(uint32_t id) const {
  const SiteInfo* site = Find(sites_, id);
  if (!site) return "";
  return site->file + ":" + std::to_string(site->line);
}

std::vector<std::string> ProcessDefinitions::CallersOf(uint32_t site) const {
  std::vector<std::string> callers;
  const SiteInfo* at = Find(sites_, site);
  // What a stranger sends may run in a circle.
  while (at && at->caller != 0 && callers.size() < kMaxCallers) {
    const uint32_t id = at->caller;
    at = Find(sites_, id);
    if (!at) break;
    // Python's name of a file's own code.
    const bool in_file = at->function.empty() || at->function == "<module>";
    callers.push_back(Site(id) + (in_file ? "" : " in " + at->function));
  }
  return callers;
}

void FunctionInfo::Fields(Archive& archive) {
  archive(name, category, roles, parameters);
}

void ObjectInfo::Fields(Archive& archive) {
  archive(class_name, bases, kind, path, root, wrapped);
}

void VariableInfo::Fields(Archive& archive) {
  archive(name, root_class, owner_class, root, kind, trainable, identity_epoch,
          dtype, shape, alias_group, shadow_of, attributes);
}

void ReplicaGroupInfo::Fields(Archive& archive) {
  archive(evidence, wrapper, ranks, variables);
}

void ProcessGroupInfo::Fields(Archive& archive) {
  archive(name, backend, ranks, mesh, mesh_dimension, mesh_name);
}

void ProcessInfo::Fields(Archive& archive) {
  archive(kind, attempt, host, pid, start_ticks, worker, owner_pid, owner_ticks,
          pass_seed, owner_step);
}

void ProcessDefinitions::Fields(Archive& archive) {
  archive(strings_, functions_, sites_, objects_, variables_, holds_, groups_,
          process_groups_, process_);
  if (archive.reading()) bytes_ = CountBytes();
}

void ProcessDefinitions::SiteInfo::Fields(Archive& archive) {
  archive(file, line, function, caller);
}

}  // namespace traincheck
