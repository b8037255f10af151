#include "checker/compare/process_versions.h"

#include <string_view>

#include "proto/record_format.h"
#include "proto/record_reader.h"

namespace traincheck {
namespace {

// A field that is not a version has no place here: null.
std::string* VersionOf(Field field, ProcessVersions* versions) {
  switch (field) {
    case Field::kTorchVersion:
      return &versions->torch;
    case Field::kPythonVersion:
      return &versions->python;
    case Field::kAgentVersion:
      return &versions->agent;
    default:
      return nullptr;
  }
}

}  // namespace

void ReadVersions(const StoredBatch& batch, ProcessVersions* versions) {
  // A batch with definitions has them in its first slice.
  if (batch.slices.empty() || batch.slices[0].ring != kDefinitionRing) return;
  const uint64_t size = batch.slices[0].to - batch.slices[0].from;
  // A slice that is longer than its batch is a gap, which the reader reports.
  RecordReader records(std::string_view(batch.plain).substr(0, size));
  while (records.Next()) {
    if (records.type() != RecordType::kProcessDef) continue;
    FieldReader fields = records.Fields();
    while (fields.Next()) {
      std::string* version = VersionOf(fields.field(), versions);
      // A later record that leaves a version out does not take it back.
      if (version != nullptr && !fields.bytes_value().empty()) {
        *version = std::string(fields.bytes_value());
      }
    }
  }
}

}  // namespace traincheck
