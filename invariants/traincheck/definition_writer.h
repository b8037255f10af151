// The definitions of one imported process: each name, function, object and
// variable gets a number when it is first asked for.
//
// Threads: one object, one thread at a time. What it returns by pointer or
// reference lives as long as it does.
#ifndef TRAINCHECK_INVARIANTS_TRAINCHECK_DEFINITION_WRITER_H_
#define TRAINCHECK_INVARIANTS_TRAINCHECK_DEFINITION_WRITER_H_

#include <cstdint>
#include <map>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "invariants/trace/definitions.h"
#include "invariants/traincheck/record_stream.h"

namespace traincheck {

// Who an imported process is.
struct ImportedProcess {
  std::string run;
  std::string experiment;
  RunRole role = RunRole::kTarget;
  std::string host;
  std::string boot_id;
  uint32_t pid = 0;
  uint64_t start_ticks = 0;
  ProcessKind kind = ProcessKind::kOther;
  uint64_t started_unix_ns = 0;
};

struct DefinedFunction {
  uint32_t id = 0;
  FunctionInfo info;
};

// A variable's definition, as far as it may change.
struct VariableTraits {
  std::string dtype;
  std::vector<uint64_t> shape;
  bool has_shape = false;
  std::vector<std::string> attributes;

  bool operator==(const VariableTraits& other) const {
    return dtype == other.dtype && shape == other.shape &&
           has_shape == other.has_shape && attributes == other.attributes;
  }
};

struct VariableKey {
  std::string name;  // "model.fc.weight"
  std::string type;
  bool operator<(const VariableKey& other) const {
    return std::tie(name, type) < std::tie(other.name, other.type);
  }
};

struct DefinedVariable {
  uint32_t id = 0;
  VariableTraits traits;
};

class DefinitionWriter {
 public:
  // Writes the ProcessDef. `stream` must outlive this object.
  DefinitionWriter(const ImportedProcess& process, RecordStream* stream);
  DefinitionWriter(const DefinitionWriter&) = delete;
  DefinitionWriter& operator=(const DefinitionWriter&) = delete;

  uint32_t String(const std::string& text);
  // `name` as the trace has it.
  const DefinedFunction& Function(const std::string& name, bool bound);
  uint32_t Site(const std::string& file, uint64_t line,
                const std::string& function);
  // Python uses the id of a dead object again: another class is another
  // object.
  uint32_t Object(uint64_t python_id, const std::string& class_name,
                  bool has_mode);
  // Defined anew where its traits have changed. `is_new`: it was not known.
  uint32_t Variable(const VariableKey& key, const VariableTraits& traits,
                    bool trainable, bool* is_new);

 private:
  uint32_t RootObject(const std::string& root_class);
  uint32_t WriteObject(const std::string& class_name, ObjectKind kind);
  void WriteVariable(const VariableKey& key, const DefinedVariable& variable,
                     bool trainable);

  RecordStream* const stream_;
  std::map<std::string, uint32_t> strings_;
  std::map<std::pair<std::string, bool>, DefinedFunction> functions_;
  std::map<std::string, uint32_t> sites_;
  std::map<std::pair<uint64_t, std::string>, uint32_t> objects_;
  std::map<std::string, uint32_t> roots_;
  std::map<VariableKey, DefinedVariable> variables_;
  uint32_t object_count_ = 0;
};

}  // namespace traincheck

#endif  // TRAINCHECK_INVARIANTS_TRAINCHECK_DEFINITION_WRITER_H_
