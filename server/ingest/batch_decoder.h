// Checks a batch down to its last record, as a peer's input that nothing is
// known about, and takes from it what the daemon itself wants to know.
//
// Threads: pure functions.
#ifndef TRAINCHECK_SERVER_INGEST_BATCH_DECODER_H_
#define TRAINCHECK_SERVER_INGEST_BATCH_DECODER_H_

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "proto/traincheck/v1/ingest.pb.h"
#include "server/runs/batch_facts.h"

namespace traincheck::server {

// ResourceExhausted naming field, size and limit.
[[nodiscard]] absl::Status CheckBatchLimits(const v1::Batch& batch);

// InvalidArgument with what is wrong and where: such a batch is for the
// quarantine. REQUIRES: CheckBatchLimits.
[[nodiscard]] absl::StatusOr<BatchFacts> DecodeBatchUntrusted(
    const v1::Batch& batch);

}  // namespace traincheck::server

#endif  // TRAINCHECK_SERVER_INGEST_BATCH_DECODER_H_
