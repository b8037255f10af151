// What the daemon does with a Batch before it stores it. Input, by its first
// byte:
//   even  a serialized Batch, so that zstd and protobuf see anything
//   odd   numbers and records (batch_input.h)
#include "server/ingest/batch_decoder.h"
#include "tests/fuzz/batch_input.h"

namespace traincheck::server {
namespace {

void Decode(const v1::Batch& batch) {
  if (!CheckBatchLimits(batch).ok()) return;
  const absl::StatusOr<BatchFacts> facts = DecodeBatchUntrusted(batch);
  Require(facts.ok() || !facts.status().message().empty());
}

}  // namespace
}  // namespace traincheck::server

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  traincheck::FuzzInput input(data, size);
  if (input.Byte() % 2 == 1) {
    traincheck::server::Decode(traincheck::BatchOf(&input));
    return 0;
  }
  traincheck::v1::Batch batch;
  if (batch.ParseFromString(input.Rest())) traincheck::server::Decode(batch);
  return 0;
}
