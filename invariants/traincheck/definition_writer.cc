#include "invariants/traincheck/definition_writer.h"

#include "invariants/relations/traincheck_rules/names.h"
#include "invariants/traincheck/function_kind.h"

namespace traincheck {

namespace {

// By these base classes rules know modules and optimizers, whatever their own
// classes are.
constexpr char kModule[] = "torch.nn.modules.module.Module";
constexpr char kOptimizer[] = "torch.optim.optimizer.Optimizer";

// One definition record on its way. It is written where it goes out of scope:
// what it names is defined before, because a reader takes definitions in their
// order.
class Definition {
 public:
  Definition(RecordStream* stream, RecordType type, uint32_t id)
      : stream_(*stream),
        type_(type),
        out_(buffer_.bytes, RecordBuffer::kBytes, DefinitionRecord{{}, id, 0}) {
  }
  ~Definition() { stream_.Finish(kDefinitionRing, &out_, &buffer_, type_, 0); }
  Definition(const Definition&) = delete;
  Definition& operator=(const Definition&) = delete;

  FieldWriter* operator->() { return &out_; }

 private:
  RecordStream& stream_;
  const RecordType type_;
  RecordBuffer buffer_;
  FieldWriter out_;
};

}  // namespace

DefinitionWriter::DefinitionWriter(const ImportedProcess& process,
                                   RecordStream* stream)
    : stream_(stream) {
  {
    // Written where the block ends: the first record of its ring, before the
    // ClockSync.
    Definition out(stream_, RecordType::kProcessDef, process.pid);
    out->Bytes(Field::kHost, process.host);
    out->Bytes(Field::kBootId, process.boot_id);
    out->Unsigned(Field::kStartTicks, process.start_ticks);
    out->Unsigned(Field::kProcessKind, static_cast<uint64_t>(process.kind));
    out->Bytes(Field::kRun, process.run);
    out->Bytes(Field::kExperiment, process.experiment);
    out->Unsigned(Field::kRunRole, static_cast<uint64_t>(process.role));
    out->Unsigned(Field::kFirstRecordedNs, process.started_unix_ns);
  }
  // A definition that replaces another one has its place in time.
  stream_->WriteClockSync(kDefinitionRing);
}

// Numbers begin at 1, because 0 stands for no text.
uint32_t DefinitionWriter::String(const std::string& text) {
  const auto [found, added] =
      strings_.emplace(text, static_cast<uint32_t>(strings_.size() + 1));
  if (added) {
    Definition out(stream_, RecordType::kStringDef, found->second);
    out->Bytes(Field::kText, text);
  }
  return found->second;
}

// Open calls keep a pointer to what is returned; entries of a std::map stay
// where they are.
const DefinedFunction& DefinitionWriter::Function(const std::string& name,
                                                  bool bound) {
  // Category and roles depend on `bound`, so that a name may be two functions.
  const auto [found, added] = functions_.try_emplace({name, bound});
  DefinedFunction& function = found->second;
  if (!added) return function;
  // The entry is in the map by now, so these numbers begin at 1, too.
  function.id = static_cast<uint32_t>(functions_.size());
  function.info.name = OurFunctionName(name);
  FunctionKind kind = KindOfFunction(function.info.name, bound);
  function.info.category = CallCategory(kind.category);
  function.info.roles = std::move(kind.roles);
  const uint32_t name_id = String(function.info.name);
  const uint32_t category = String(kind.category);
  std::vector<uint32_t> roles;
  for (const std::string& role : function.info.roles) {
    roles.push_back(String(role));
  }
  Definition out(stream_, RecordType::kFunctionDef, function.id);
  out->Unsigned(Field::kName, name_id);
  if (!kind.category.empty()) out->Unsigned(Field::kCategory, category);
  for (uint32_t role : roles) out->Unsigned(Field::kRole, role);
  return function;
}

uint32_t DefinitionWriter::Site(const std::string& file, uint64_t line,
                                const std::string& function) {
  const std::string key = file + "\n" + std::to_string(line) + "\n" + function;
  const auto [found, added] =
      sites_.emplace(key, static_cast<uint32_t>(sites_.size() + 1));
  if (added) {
    const uint32_t file_id = String(file);
    const uint32_t function_id = String(function);
    Definition out(stream_, RecordType::kSiteDef, found->second);
    out->Unsigned(Field::kFile, file_id);
    out->Unsigned(Field::kLine, line);
    out->Unsigned(Field::kFunctionName, function_id);
  }
  return found->second;
}

uint32_t DefinitionWriter::WriteObject(const std::string& class_name,
                                       ObjectKind kind) {
  const uint32_t class_id = String(class_name);
  // One name stands for all base classes, which a trace does not record.
  std::string base;
  if (kind == ObjectKind::kModule) base = kModule;
  if (kind == ObjectKind::kOptimizer) base = kOptimizer;
  const uint32_t base_id = base.empty() ? 0 : String(base);
  Definition out(stream_, RecordType::kObjectDef, ++object_count_);
  out->Unsigned(Field::kClass, class_id);
  if (base_id != 0) out->Unsigned(Field::kBaseClass, base_id);
  out->Unsigned(Field::kObjectKind, static_cast<uint64_t>(kind));
  return object_count_;
}

uint32_t DefinitionWriter::Object(uint64_t python_id,
                                  const std::string& class_name,
                                  bool has_mode) {
  const auto [found, added] = objects_.try_emplace({python_id, class_name});
  if (added) {
    found->second = WriteObject(OurFunctionName(class_name),
                                KindOfClass(class_name, has_mode));
  }
  return found->second;
}

uint32_t DefinitionWriter::RootObject(const std::string& root_class) {
  // A trace names the root of a variable by a text alone: one object stands for
  // each text.
  const auto [found, added] = roots_.try_emplace(root_class);
  if (added) found->second = WriteObject(root_class, ObjectKind::kModule);
  return found->second;
}

uint32_t DefinitionWriter::Variable(const VariableKey& key,
                                    const VariableTraits& traits,
                                    bool trainable, bool* is_new) {
  const auto [found, added] = variables_.try_emplace(key);
  DefinedVariable& variable = found->second;
  *is_new = added;
  // Most lines of a variable repeat what is known of it.
  if (!added && variable.traits == traits) return variable.id;
  if (added) variable.id = static_cast<uint32_t>(variables_.size());
  // The same number once more: for a reader the new definition holds from here
  // on, and states that were written before keep the old one.
  variable.traits = traits;
  WriteVariable(key, variable, trainable);
  return variable.id;
}

void DefinitionWriter::WriteVariable(const VariableKey& key,
                                     const DefinedVariable& variable,
                                     bool trainable) {
  // TrainCheck's names are ROOT.PATH, "model.fc.weight". The first part stands
  // for the class of the root, which a trace does not record.
  const size_t dot = key.name.find('.');
  const std::string root_class = key.name.substr(0, dot);
  const std::string name =
      dot == std::string::npos ? key.name : key.name.substr(dot + 1);
  // The type is all that says what a tensor is: a trace does not set buffers
  // apart from other tensors.
  const bool parameter = key.type.find("Parameter") != std::string::npos;
  const uint32_t root = RootObject(root_class);
  const uint32_t name_id = String(name);
  const uint32_t root_class_id = String(root_class);
  const VariableTraits& traits = variable.traits;
  const uint32_t dtype = traits.dtype.empty() ? 0 : String(traits.dtype);
  std::vector<uint32_t> attributes;
  for (const std::string& attribute : traits.attributes) {
    attributes.push_back(String(attribute));
  }
  Definition out(stream_, RecordType::kVariableDef, variable.id);
  out->Unsigned(Field::kName, name_id);
  out->Unsigned(Field::kRootClass, root_class_id);
  out->Unsigned(Field::kRootObject, root);
  out->Unsigned(Field::kVariableKind,
                static_cast<uint64_t>(parameter ? VariableKind::kParameter
                                                : VariableKind::kUnknown));
  out->Unsigned(Field::kTrainable, trainable);
  if (dtype != 0) out->Unsigned(Field::kDtype, dtype);
  for (uint64_t size : traits.shape) out->Unsigned(Field::kDimension, size);
  for (uint32_t attribute : attributes) {
    out->Unsigned(Field::kAttribute, attribute);
  }
}

}  // namespace traincheck
