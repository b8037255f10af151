#include "tests/fault/process_audit.h"

#include <string_view>

#include "proto/record_format.h"
#include "zstd.h"

namespace traincheck::server {
namespace {

constexpr size_t kMaxErrors = 20;

std::string Plain(const v1::Batch& batch) {
  std::string plain(batch.plain_bytes(), '\0');
  const size_t size =
      ZSTD_decompress(plain.data(), plain.size(), batch.payload().data(),
                      batch.payload().size());
  if (ZSTD_isError(size) || size != plain.size()) plain.clear();
  return plain;
}

}  // namespace

void ProcessAudit::Sequence::Add(uint64_t number, uint64_t origin) {
  const uint64_t expected = count == 0 ? origin : last + 1;
  if (count == 0) first = number;
  ++count;
  if (number < expected) {
    ++repeated;
    return;
  }
  missing += number - expected;
  last = number;
}

void ProcessAudit::Error(const std::string& what) {
  if (errors_.size() < kMaxErrors) errors_.push_back(what);
}

void ProcessAudit::Add(uint64_t number, const v1::Batch& batch) {
  ++batches_;
  const std::string plain = Plain(batch);
  std::string_view rest = plain;
  for (const v1::Slice& slice : batch.slices()) {
    const uint64_t size = slice.to() - slice.from();
    if (slice.to() < slice.from() || size > rest.size()) {
      Error("batch " + std::to_string(number) + ": bytes are missing");
      return;
    }
    // A copy: the reader wants its bytes aligned.
    AddSlice(slice, std::string(rest.substr(0, size)));
    rest.remove_prefix(size);
  }
  if (!rest.empty()) {
    Error("batch " + std::to_string(number) + ": bytes beyond its slices");
  }
}

void ProcessAudit::AddSlice(const v1::Slice& slice, std::string_view bytes) {
  Ring& ring = rings_[slice.ring()];
  if (!ring.seen) {
    ring.seen = true;
    ring.from = slice.from();
    if (slice.from() > 0) ring.gaps.emplace_back(0, slice.from());
  } else if (slice.from() > ring.to) {
    ring.gaps.emplace_back(ring.to, slice.from());
  } else if (slice.from() < ring.to) {
    ++ring.overlaps;
  }
  ring.to = slice.to();
  RecordReader records(bytes);
  uint64_t count = 0;
  while (records.Next()) {
    if (records.type() == RecordType::kPadding) continue;
    ++count;
    AddRecord(records, &ring);
  }
  if (!records.ok()) Error(records.error());
  if (count != slice.records()) Error("a slice miscounts its records");
  ring.records += count;
}

void ProcessAudit::AddRecord(const RecordReader& record, Ring* ring) {
  switch (record.type()) {
    case RecordType::kCallBegin: {
      const auto& begin = record.Get<CallBeginRecord>();
      ring->calls.Add(begin.call, 1);
      CheckDefined(RecordType::kFunctionDef, begin.function);
      break;
    }
    case RecordType::kState:
      CheckDefined(RecordType::kVariableDef,
                   record.Get<StateRecord>().variable);
      break;
    case RecordType::kMark: {
      const auto& mark = record.Get<MarkRecord>();
      const auto kind = static_cast<MarkKind>(mark.header.flags);
      if (kind == MarkKind::kStepClosed) ring->steps.Add(mark.value, 0);
      if (kind == MarkKind::kCleanExit) ring->clean_exit = true;
      break;
    }
    case RecordType::kProcessDef:
      AddProcess(record);
      break;
    default:
      break;
  }
  if (IsDefinition(record.header().type)) {
    defined_.emplace(record.header().type, record.Get<DefinitionRecord>().id);
  }
}

void ProcessAudit::AddProcess(const RecordReader& record) {
  pid_ = record.Get<DefinitionRecord>().id;
  FieldReader fields = record.Fields();
  while (fields.Next()) {
    if (fields.field() == Field::kRun) run_ = fields.bytes_value();
    if (fields.field() == Field::kProcessKind) kind_ = fields.unsigned_value();
    if (fields.field() == Field::kAttempt) attempt_ = fields.unsigned_value();
  }
}

void ProcessAudit::CheckDefined(RecordType definition, uint32_t id) {
  const auto key = std::make_pair(static_cast<uint8_t>(definition), id);
  if (id != 0 && defined_.count(key) == 0) ++undefined_;
}

nlohmann::json ProcessAudit::ShowRing(uint32_t number, const Ring& ring) {
  return {{"ring", number},
          {"records", ring.records},
          {"from", ring.from},
          {"to", ring.to},
          {"gaps", ring.gaps},
          {"overlaps", ring.overlaps},
          {"calls", ring.calls.count},
          {"first_call", ring.calls.first},
          {"last_call", ring.calls.last},
          {"missing_calls", ring.calls.missing},
          {"repeated_calls", ring.calls.repeated},
          {"steps", ring.steps.count},
          {"last_step", ring.steps.last},
          {"missing_steps", ring.steps.missing},
          {"repeated_steps", ring.steps.repeated},
          {"clean_exit", ring.clean_exit}};
}

nlohmann::json ProcessAudit::Show() const {
  nlohmann::json rings = nlohmann::json::array();
  for (const auto& [number, ring] : rings_) {
    rings.push_back(ShowRing(number, ring));
  }
  return {{"run_id", run_},      {"pid", pid_},
          {"kind", kind_},       {"attempt", attempt_},
          {"batches", batches_}, {"undefined", undefined_},
          {"errors", errors_},   {"rings", rings}};
}

}  // namespace traincheck::server
