// The record decoder on any bytes: it must stay inside them, stop at the first
// malformed record and say so, and take everything if all is well.
#include <string>

#include "proto/record_reader.h"
#include "tests/fuzz/fuzz_input.h"

namespace traincheck {
namespace {

bool Lies(std::string_view part, std::string_view whole) {
  return part.empty() ||
         (part.data() >= whole.data() &&
          part.data() + part.size() <= whole.data() + whole.size());
}

// Every field, whatever accessor fits it.
uint64_t ReadFields(const RecordReader& records) {
  uint64_t sum = 0;
  FieldReader fields = records.Fields();
  while (fields.Next()) {
    Require(fields.ok());
    Require(Lies(fields.bytes_value(), records.bytes()));
    sum += fields.unsigned_value() + fields.bytes_value().size();
    sum += static_cast<uint64_t>(fields.signed_value());
    sum += fields.double_value() != 0;
    for (char c : fields.bytes_value()) sum += static_cast<uint8_t>(c);
  }
  return sum;
}

uint64_t ReadDigests(const RecordReader& records) {
  const auto& state = records.Get<StateRecord>();
  Require(state.point <= kMaxStatePoint);
  uint64_t sum = 0;
  if (state.content & kHasData) sum += records.data_digest();
  if (state.content & kHasGrad) sum += records.grad_digest();
  if (IsDeferred(state)) sum += records.deferred_number();
  return sum;
}

void ReadAll(const std::string& bytes) {
  RecordReader records(bytes);
  size_t next = 0;
  volatile uint64_t sum = 0;
  while (records.Next()) {
    Require(records.ok() && records.offset() == next);
    Require(Lies(records.bytes(), bytes));
    next += records.header().size_bytes;
    // The whole fixed part is there to be read.
    if (records.known()) {
      Require(records.bytes().size() >= FixedBytes(records.header().type));
    }
    for (char c : records.bytes()) sum = sum + static_cast<uint8_t>(c);
    if (records.type() == RecordType::kState) sum = sum + ReadDigests(records);
    if (records.type() == RecordType::kDeferredDigests) {
      for (const auto& came : records.deferred_digests())
        sum = sum + came.flags;
    }
    sum = sum + ReadFields(records);
  }
  Require(records.ok() == (next == bytes.size()));
  Require(!records.Next());
}

}  // namespace
}  // namespace traincheck

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::ReadAll(traincheck::FuzzInput(data, size).Rest());
  return 0;
}
